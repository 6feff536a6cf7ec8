"""Canary ids: recognised wherever an engine puts them, forged by nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.core.canary import canary_id, canary_key, new_run_id, read_canary_id

KEY = canary_key("token-of-this-test-token-of-this-test")


@given(st.from_regex(r"[a-z0-9]{1,40}", fullmatch=True), st.integers(0, 10**12 - 1))
def test_round_trip(run: str, n: int):
    made = canary_id(KEY, run, n)
    found = read_canary_id(KEY, made)
    assert found is not None
    assert (found.run, found.n, found.id) == (run, n, made)


def test_found_inside_an_engine_s_own_id():
    made = canary_id(KEY, "r1", 5)
    found = read_canary_id(KEY, f"chatcmpl-{made}-0a1b2c3d")
    assert found is not None
    assert found.id == made


@pytest.mark.parametrize(
    "change",
    [lambda i: i[:-1] + ("0" if i[-1] != "0" else "1"), lambda i: i.replace("-5-", "-6-"), str.upper, lambda i: i[:-1]],
)
def test_a_changed_id_is_no_canary(change):
    assert read_canary_id(KEY, change(canary_id(KEY, "r1", 5))) is None


def test_another_token_s_id_is_no_canary():
    assert read_canary_id(canary_key("another-token"), canary_id(KEY, "r1", 5)) is None


@given(st.text(max_size=400))
def test_any_text_is_read_without_raising(text: str):
    assert read_canary_id(KEY, text) is None


def test_a_run_with_a_dash_is_refused():
    with pytest.raises(ValueError, match="run='a-b'"):
        canary_id(KEY, "a-b", 1)


def test_run_ids_are_new_each_time():
    assert len({new_run_id() for _ in range(100)}) == 100
