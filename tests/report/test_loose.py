"""Whatever JSON there is, every question has an answer of the right type."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.report.loose import flag, items, mapping, number, parse, text, whole

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=2)
)


@given(ANYTHING)
def test_answers_have_their_type(value: object) -> None:
    found = number(value)
    assert found is None or (isinstance(found, float) and math.isfinite(found) and abs(found) <= 1e30)
    assert isinstance(whole(value), int) and whole(value) >= 0
    assert isinstance(text(value), str) and isinstance(flag(value), bool)
    assert isinstance(items(value), list) and mapping(value) == {}
    text(value).encode("utf-8")


def test_what_is_a_number() -> None:
    assert number(3) == 3.0 and number(-0.5) == -0.5
    for none in (True, "3", None, math.nan, math.inf, 10**400, 1e31, [3]):
        assert number(none) is None
    assert whole(-3) == 0 and whole("x", 7) == 7 and whole(2.9) == 2


def test_text_loses_what_would_break_or_turn_what_stands_beside_it() -> None:
    assert text("a\x00b\x1b[31m\ud800\u202ec\u2066d\x85") == "a\ufffdb\ufffd[31m\ufffd\ufffdc\ufffdd\ufffd"
    assert text("שלום \u200f 😀 ü\n\t") == "שלום \u200f 😀 ü\n\t"
    assert (text(True), text(2), text(0.5), text(None), text([1], "-")) == ("true", "2", "0.5", "", "-")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"1" * 10_000, b'"\\ud8', b"nul"]
)
def test_what_is_no_json_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(data)


def test_json_that_python_alone_would_take_holds_no_such_number() -> None:
    assert parse(b'{"a": NaN, "b": [Infinity, -Infinity]}') == {"a": None, "b": [None, None]}
    assert parse(json.dumps({"\u202ekey": 1}).encode()) == {"\ufffdkey": 1}


@pytest.mark.parametrize("data", [b'{"a\\u202eb": 1}', '{"a\u202eb": 1}'.encode()])
def test_names_are_made_fit_however_they_are_written(data: bytes) -> None:
    assert parse(data) == {"a\ufffdb": 1}
