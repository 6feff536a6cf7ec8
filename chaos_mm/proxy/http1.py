"""HTTP/1.1 message heads as bytes: parsed for routing and framing, forwarded line by line as they came (RFC 9112).

A head is kept as its raw lines, so whatever the proxy does not change goes out with the same order, case, duplicates
and spacing. Requests are read strictly, because two parsers that disagree about where a request ends are a security
hole; responses leniently, because an odd answer is the service's own and the client should see it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self
from urllib.parse import unquote

MAX_HEAD_BYTES = 64 * 1024

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) (HTTP/1\.[01])")
_STATUS_LINE = re.compile(rb"(HTTP/1\.[01]) ([0-9]{3})(?: .*)?", re.DOTALL)


class BadMessage(Exception):
    """A head or a body framing that cannot be read safely; `status` is what the client of a bad request is told."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Body(Enum):
    """How the end of a message's body is found."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Framing:
    """A body's delimiter; `length` in bytes counts for Body.LENGTH alone."""

    body: Body
    length: int = 0


NO_BODY = Framing(Body.NONE)


class Head:
    """A start line and its field lines. `fields[i]` is (lower-case name, stripped value) of `lines[i]`."""

    __slots__ = ("fields", "lines", "start_line")

    def __init__(self, start_line: bytes, lines: list[bytes], fields: list[tuple[bytes, bytes]]) -> None:
        self.start_line = start_line
        self.lines = lines
        self.fields = fields

    @classmethod
    def parse(cls, raw: bytes, *, strict: bool) -> Self:
        """Read a head that ends with an empty line; `strict` refuses folded, nameless and control-ridden lines."""
        start_line, *lines = raw[:-4].split(b"\r\n")
        return cls(start_line, lines, [_field(line, strict) for line in lines])

    def encode(self) -> bytes:
        """The head's bytes, empty line included."""
        return b"\r\n".join((self.start_line, *self.lines, b"", b""))

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a field, in order."""
        return [value for field, value in self.fields if field == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field."""
        return next((value for field, value in self.fields if field == name), None)

    def tokens(self, name: bytes) -> set[bytes]:
        """The members of a comma-separated field, lower case."""
        return {token.strip().lower() for value in self.values(name) for token in value.split(b",")} - {b""}

    def put(self, name: str, value: bytes) -> None:
        """Set a field where it stands, keeping its line's spelling of the name; append it when it is not there."""
        lower = name.lower().encode()
        for index, (field, _) in enumerate(self.fields):
            if field == lower:
                spelling = self.lines[index].partition(b":")[0]
                self.lines[index], self.fields[index] = spelling + b": " + value, (lower, value)
                return
        self.lines.append(name.encode() + b": " + value)
        self.fields.append((lower, value))

    def drop(self, names: Iterable[bytes]) -> None:
        """Remove every line of these fields (names in lower case)."""
        gone = frozenset(names)
        kept = [index for index, (field, _) in enumerate(self.fields) if field not in gone]
        self.lines = [self.lines[index] for index in kept]
        self.fields = [self.fields[index] for index in kept]


class RequestHead(Head):
    """A request's head: `method`, `target` as sent, `version`."""

    __slots__ = ("method", "target", "version")
    method: bytes
    target: bytes
    version: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Parse strictly. Raises BadMessage with the status to answer."""
        head = cls.parse(raw, strict=True)
        match = _REQUEST_LINE.fullmatch(head.start_line)
        if match is None:
            status = 505 if b" HTTP/" in head.start_line and b" HTTP/1." not in head.start_line else 400
            raise BadMessage("the request line is not one of HTTP/1.0 or HTTP/1.1", status)
        head.method, head.target, head.version = match.groups()
        return head

    @property
    def path(self) -> str:
        """The decoded path, without query: for routing and labels, never for forwarding."""
        target = self.target.decode("latin-1").partition("?")[0]
        if "://" in target and not target.startswith("/"):  # absolute form; its authority is the upstream's to judge
            target = "/" + target.partition("://")[2].partition("/")[2]
        return unquote(target)

    @property
    def upgrade(self) -> bool:
        """Whether the client asks to leave HTTP/1.1 on this connection (WebSocket, h2c)."""
        return b"upgrade" in self.tokens(b"connection") and self.value(b"upgrade") is not None

    def framing(self) -> Framing:
        """The body's delimiter. Raises BadMessage where two servers could read it differently (RFC 9112 §6.3)."""
        coding = self.values(b"transfer-encoding")
        lengths = set(self.values(b"content-length"))
        if coding and (lengths or self.version == b"HTTP/1.0"):
            raise BadMessage("Transfer-Encoding beside Content-Length, or in HTTP/1.0, is ambiguous")
        if coding:
            if b", ".join(coding).lower() != b"chunked":
                raise BadMessage("the only Transfer-Encoding a request may have here is 'chunked'", 501)
            return Framing(Body.CHUNKED)
        return _length(lengths) if lengths else NO_BODY


class ResponseHead(Head):
    """A response's head: `version`, `status`."""

    __slots__ = ("status", "version")
    status: int
    version: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Parse leniently: a field line that cannot be read is forwarded and ignored. Raises BadMessage."""
        head = cls.parse(raw, strict=False)
        match = _STATUS_LINE.fullmatch(head.start_line)
        if match is None:
            raise BadMessage("the upstream's status line is not HTTP/1.x")
        head.version, head.status = match.group(1), int(match.group(2))
        return head

    @property
    def interim(self) -> bool:
        """A 1xx that another response follows."""
        return 100 <= self.status < 200 and self.status != 101

    def framing(self, method: bytes) -> Framing:
        """The body's delimiter, by the request's method and this status (RFC 9112 §6.3)."""
        if method == b"HEAD" or self.status < 200 or self.status in {204, 304}:
            return NO_BODY
        coding = self.values(b"transfer-encoding")
        if coding:
            chunked = b",".join(coding).lower().split(b",")[-1].strip() == b"chunked"
            return Framing(Body.CHUNKED if chunked else Body.UNTIL_CLOSE)
        lengths = set(self.values(b"content-length"))
        return _length(lengths) if lengths else Framing(Body.UNTIL_CLOSE)


def keeps_alive(head: RequestHead | ResponseHead) -> bool:
    """Whether this side lets the connection serve another exchange (RFC 9112 §9.3)."""
    options = head.tokens(b"connection")
    return b"keep-alive" in options if head.version == b"HTTP/1.0" else b"close" not in options


def _field(line: bytes, strict: bool) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if colon and _TOKEN.fullmatch(name):
        if strict and (b"\r" in value or b"\n" in value or b"\0" in value):
            raise BadMessage("a header field holds a control character")
        return name.lower(), value.strip(b" \t")
    if strict:
        raise BadMessage("a header line is not 'name: value'")
    return b"", b""


def _length(lengths: set[bytes]) -> Framing:
    """Content-Length; several equal values are one, anything else is refused."""
    text = lengths.pop()
    if lengths or not text.isdigit() or len(text) > 18:
        raise BadMessage("Content-Length is not one number")
    return Framing(Body.LENGTH, int(text))
