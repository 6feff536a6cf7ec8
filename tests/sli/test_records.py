"""Records travel as strict JSON and come back the same; anything else is refused by name."""

import json
import math
from typing import Any

import pytest

from chaos_mm.sli.records import Record, parse
from tests.sli.samples import failed, record


def test_there_and_back() -> None:
    for sent in (record(3, 17.25), failed(4, 1.0), Record(id="x")):
        assert Record.from_json(json.loads(sent.to_line())) == sent


def test_a_line_is_one_line_of_strict_json() -> None:
    line = record(question="what\nnumber").to_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["ok"] is True


def test_a_number_that_is_not_finite_never_becomes_a_line() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        record(lag_seconds=math.nan).to_line()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n", "3", "n is '3'; it must be a whole number"),
        ("n", True, "must be a whole number"),
        ("scheduled_at", math.nan, "scheduled_at is nan; it must be a finite number"),
        ("ended_at", 10**400, "must be a finite number"),
        ("exact", "yes", "must be true, false or null"),
        ("audience", "victim", "allowed: canary, bystander"),
        ("phase", "chaos", "allowed: , baseline, fault, recovery, end"),
        ("answer", None, "answer is None; it must be text"),
    ],
)
def test_a_bad_field_is_named(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Record.from_json({**record().to_json(), field: value})


def test_what_is_no_record_is_refused() -> None:
    for found in (None, 3, [], {"n": 3}):
        with pytest.raises(ValueError, match="a record must"):
            Record.from_json(found)


def test_a_field_of_a_newer_version_passes() -> None:
    assert Record.from_json({**record().to_json(), "tokens": 5}) == record()


def test_parse_keeps_what_it_can_read() -> None:
    found, unreadable = parse([record(), record().to_json(), {"id": 3}, None])
    assert (len(found), unreadable) == (2, 2)
    assert parse("nonsense") == ([], 0)


def test_latency_counts_from_the_scheduled_time() -> None:
    late = record(at=100.0, sent_at=101.0, first_token_at=101.1, last_token_at=101.4, ended_at=101.5, chunks=4)
    assert late.ttft_seconds == pytest.approx(1.1)
    assert late.e2e_seconds == pytest.approx(1.5)
    assert late.itl_seconds == pytest.approx(0.1)


def test_a_miss_counts_as_the_timeout() -> None:
    miss = failed(timeout_seconds=7.0, error="status", status=500, ended_at=0.01)
    assert (miss.ttft_seconds, miss.itl_seconds, miss.e2e_seconds, miss.gap_seconds) == (7.0, 7.0, 7.0, 7.0)


def test_what_an_answer_does_not_have_is_none() -> None:
    whole = record(first_token_at=None, last_token_at=None, chunks=0, max_gap_seconds=None)
    assert (whole.ttft_seconds, whole.itl_seconds, whole.gap_seconds) == (None, None, None)
    assert record(chunks=1).itl_seconds is None
