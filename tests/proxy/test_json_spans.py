"""The scanner against a real parser: same strings at the same places, and a splice changes nothing else."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.proxy.json_spans import STRING, Node, Shape, Span, locate, splice

# Descends into "a" and "b" at every level, and into every array, four levels deep.
DEEP = STRING
for _ in range(4):
    DEEP = Shape({"a": DEEP, "b": DEEP}, items=DEEP)

text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(["a", "b", "c", 'q"', "\\", "é", ""])
leaves = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.floats(allow_nan=False) | text
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=25
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Valid JSON of every spelling: escapes or UTF-8, any white space, duplicate names."""
    value = draw(values)
    raw = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 3, "\t"])))
    if draw(st.booleans()):
        raw = raw.replace('"a"', '"\\u0061"') if draw(st.booleans()) else raw.replace("/", "\\/")
    if isinstance(value, dict) and draw(st.booleans()):
        raw = '{"a": "first", "c": [{"a": "]}"}], ' + raw.lstrip()[1:] if value else raw
    return f"{draw(st.sampled_from(['', ' ', chr(10)]))}{raw} \r\n".encode()


def expected(value: Any, shape: Shape) -> Any:
    """What `locate` must find, told from the parsed value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and shape.members:
        return {key: expected(item, shape.members[key]) for key, item in value.items() if key in shape.members}
    if isinstance(value, list) and shape.items is not None:
        return [expected(item, shape.items) for item in value]
    return None


def decoded(data: bytes, node: Node) -> Any:
    if isinstance(node, Span):
        assert data[node.start : node.start + 1] == b'"' == data[node.end - 1 : node.end]
        return node.text(data)
    if isinstance(node, dict):
        return {key: decoded(data, item) for key, item in node.items()}
    return [decoded(data, item) for item in node] if isinstance(node, list) else None


def spans(node: Node) -> list[Span]:
    if isinstance(node, Span):
        return [node]
    children = node.values() if isinstance(node, dict) else node or []
    return [span for child in children for span in spans(child)]


@settings(deadline=None)
@given(documents())
def test_finds_what_the_parser_finds(data: bytes) -> None:
    assert decoded(data, locate(data, DEEP)) == expected(json.loads(data), DEEP)


@settings(deadline=None)
@given(documents(), text)
def test_a_splice_changes_the_string_and_nothing_else(data: bytes, new: str) -> None:
    tree = locate(data, DEEP)
    for span in spans(tree):
        changed = splice(data, [(span, orjson.dumps(new))])
        assert changed[: span.start] == data[: span.start]
        assert changed[len(changed) - (len(data) - span.end) :] == data[span.end :]
        assert Span(span.start, span.start + len(orjson.dumps(new))).text(changed) == new
        json.loads(changed)


@settings(deadline=None)
@given(documents())
def test_several_edits_at_once(data: bytes) -> None:
    found = spans(locate(data, DEEP))
    changed = splice(data, [(span, b'"x"') for span in reversed(found)])
    assert spans_text(changed) == ["x"] * len(found)


def spans_text(data: bytes) -> list[str]:
    return [span.text(data) for span in spans(locate(data, DEEP))]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": "1", "a": "2"}', {"a": "2"}),
        (b'{"a": "1", "a": [1]}', {"a": [None]}),
        (b'{"\\u0061": "x\\"y\\\\"}', {"a": 'x"y\\'}),
        (b'{"c": "]}", "a": "\\\\"}', {"a": "\\"}),
        (b' {"a" :\t"1"\n, "c": {"a": ["}"]} } ', {"a": "1"}),
        (b"[]", []),
        (b"{}", {}),
        (b'"top"', "top"),
        (b"12", None),
    ],
)
def test_by_hand(data: bytes, found: Any) -> None:
    assert decoded(data, locate(data, DEEP)) == found


def test_a_shape_of_strings_does_not_descend() -> None:
    assert locate(b'{"a": "1"}', STRING) is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"a', b'{"a":', b'{"a": [', b'{"a": [1', b'["\\'])
def test_what_is_not_json_ends_in_an_index_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        locate(data, DEEP)
