"""Where the strings of interest lie inside a JSON text, so that one can be replaced and every other byte kept.

One pass over text that a real parser has already accepted: a `Shape` names the members to descend into, everything
else is skipped. As in `json.loads`, the last of duplicate names wins.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import orjson

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRUCTURE = re.compile(rb'["\[\]{}]')
_SCALAR = re.compile(rb"[^,\]} \t\n\r]+")
_REST_OF_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Span(NamedTuple):
    """A JSON string with its quotes: `data[start:end]`."""

    start: int
    end: int

    def text(self, data: bytes) -> str:
        """The string's value."""
        return str(orjson.loads(memoryview(data)[self.start : self.end]))

    def value(self, data: bytes) -> bytes:
        """The string's value as UTF-8, without decoding a megabyte of base64 on the way."""
        raw = data[self.start + 1 : self.end - 1]
        return self.text(data).encode() if b"\\" in raw else raw


Node: TypeAlias = "Span | dict[str, Node] | list[Node] | None"


@dataclass(frozen=True, slots=True)
class Shape:
    """What to find: `members` of an object, the `items` of an array. A string is found whatever the shape says."""

    members: Mapping[str, "Shape"] = field(default_factory=dict)
    items: "Shape | None" = None


STRING = Shape()


def locate(data: bytes, shape: Shape) -> Node:
    """Mirror `data` (valid JSON, UTF-8) as far as `shape` goes: strings become spans, all else None.

    A text that is not valid JSON gives an arbitrary answer or IndexError; parse it first.
    """
    return _value(data, _skip_space(data, 0), shape)[0]


def splice(data: bytes, edits: Iterable[tuple[Span, bytes]]) -> bytes:
    """`data` with each span replaced by a JSON string; spans must not overlap."""
    pieces: list[bytes] = []
    at = 0
    for span, new in sorted(edits):
        pieces += (data[at : span.start], new)
        at = span.end
    return b"".join((*pieces, data[at:]))


def _value(data: bytes, at: int, shape: Shape) -> tuple[Node, int]:
    first = data[at]
    if first == 0x22:
        end = _string_end(data, at)
        return Span(at, end), end
    if first == 0x7B and shape.members:
        return _object(data, at, shape.members)
    if first == 0x5B and shape.items is not None:
        return _array(data, at, shape.items)
    return None, _skip(data, at)


def _object(data: bytes, at: int, members: Mapping[str, Shape]) -> tuple[dict[str, Node], int]:
    found: dict[str, Node] = {}
    at = _skip_space(data, at + 1)
    while data[at] != 0x7D:
        end = _string_end(data, at)
        name = _name(data, Span(at, end))
        at = _skip_space(data, _skip_space(data, end) + 1)
        shape = members.get(name)
        if shape is None:
            at = _skip(data, at)
        else:
            found[name], at = _value(data, at, shape)
        at = _next(data, at)
    return found, at + 1


def _array(data: bytes, at: int, items: Shape) -> tuple[list[Node], int]:
    found: list[Node] = []
    at = _skip_space(data, at + 1)
    while data[at] != 0x5D:
        node, at = _value(data, at, items)
        found.append(node)
        at = _next(data, at)
    return found, at + 1


def _name(data: bytes, span: Span) -> str:
    raw = data[span.start + 1 : span.end - 1]
    return span.text(data) if b"\\" in raw else raw.decode()


def _next(data: bytes, at: int) -> int:
    """From the end of a value to the next value, or to the closing bracket."""
    at = _skip_space(data, at)
    return _skip_space(data, at + 1) if data[at] == 0x2C else at


def _skip_space(data: bytes, at: int) -> int:
    match = _SPACE.match(data, at)
    return match.end() if match else at


def _string_end(data: bytes, at: int) -> int:
    end = data.find(b'"', at + 1)
    if end < 0:
        raise IndexError("a string does not end")
    # memchr over a megabyte of base64 costs microseconds; the pattern is only for strings with escapes.
    if data.find(b"\\", at + 1, end) < 0:
        return end + 1
    return _matched(_REST_OF_STRING, data, at + 1)


def _skip(data: bytes, at: int) -> int:
    """The end of any value."""
    if data[at] == 0x22:
        return _string_end(data, at)
    if data[at] not in b"[{":
        return _matched(_SCALAR, data, at)
    depth = 0
    while True:
        at = _matched(_STRUCTURE, data, at, search=True) - 1
        if data[at] == 0x22:
            at = _string_end(data, at)
            continue
        depth += 1 if data[at] in b"[{" else -1
        at += 1
        if depth == 0:
            return at


def _matched(pattern: re.Pattern[bytes], data: bytes, at: int, *, search: bool = False) -> int:
    match = pattern.search(data, at) if search else pattern.match(data, at)
    if match is None:
        raise IndexError("the text is not valid JSON")
    return match.end()
