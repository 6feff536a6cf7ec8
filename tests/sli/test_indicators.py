"""Every SLI on hand-made records, and on anything at all."""

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos_mm.sli.indicators import INDICATORS, Selection, measure
from chaos_mm.sli.records import Record
from tests.sli.samples import failed, record


def value(name: str, records: list[Record], seconds: float = 10.0, **options: Any) -> float:
    answer = measure(name, records, window_seconds=seconds, **options)
    assert answer.measured, answer.reason
    return answer.value


def test_failures_stay_in_the_denominator() -> None:
    records = [*[record(n) for n in range(8)], failed(8), failed(9, error="overload", sent_at=None)]
    assert value("ok_ratio", records) == 0.8
    assert value("canary_exact", records) == 0.8
    assert value("e2e", records, threshold_seconds=60.0) == 0.8  # a miss is never good, however long the threshold


def test_bystanders_are_judged_by_answer_too() -> None:
    records = [
        record(0, audience="bystander"),
        record(1, audience="bystander", exact=False),
        record(2, audience="bystander", exact=None),
        failed(3, audience="bystander"),
        record(4, exact=False),
    ]
    assert value("bystander_ok", records) == 0.5


def test_latency_objectives_are_shares_under_a_threshold() -> None:
    records = [record(n, first_token_at=0.125 * n) for n in range(1, 11)]
    assert value("ttft", records, threshold_seconds=0.375) == 0.3
    assert value("ttft", records) == 1.0


def test_percentiles_say_no_data_when_they_would_guess() -> None:
    records = [record(n, ended_at=0.01 * n) for n in range(1, 200)]
    few = measure("e2e_p95", records, window_seconds=10)
    assert (few.measured, few.value, few.reason) == (False, 0.0, "p95 needs 200 samples, not 199")
    assert value("e2e_p50", records) == pytest.approx(1.0)
    assert value("e2e_p95", [*records, record(200, ended_at=2.0)]) == pytest.approx(1.9005)


def test_streams_without_an_end_are_not_whole() -> None:
    cut = record(1, complete=False, finish_reason="", error="cut")
    assert value("stream_complete", [record(0), cut]) == 0.5
    whole = record(2, chunks=0, first_token_at=None)  # not streamed
    assert not measure("stream_complete", [whole], window_seconds=10).measured
    assert not measure("ttft", [whole], window_seconds=10).measured


def test_leaks_are_counted_among_all() -> None:
    records = [record(0), record(1, exact=False, leak=True), record(2, audience="bystander", leak=True, exact=False)]
    assert value("leak_count", records) == 2.0
    assert value("leak_count", [record(0)]) == 0.0
    assert not measure("leak_count", [record(0, expected="")], window_seconds=10).measured


def test_alignment_looks_at_agreement_canaries_alone() -> None:
    pair = {"kind": "agreement", "modality": "agreement", "expected": "yes"}
    records = [record(0, **pair), record(1, exact=False, **pair), record(2, exact=False)]
    assert value("alignment_ok", records) == 0.5


def test_wer_counts_digits_of_speech() -> None:
    speech = {"kind": "audio", "modality": "audio"}
    records = [record(0, answer="4073", exact=False, **speech), record(1, **speech), failed(2, **speech), record(3)]
    assert value("wer", records) == pytest.approx(5 / 12)
    assert value("similarity", records) == pytest.approx((0.75 + 1 + 0 + 1) / 4)


def test_goodput_is_per_second() -> None:
    slow = record(3, first_token_at=5.0, ended_at=6.0)
    records = [record(0), record(1), record(2, exact=False), slow, failed(4)]
    assert value("goodput", records, seconds=4.0) == 0.5
    assert not measure("goodput", records, window_seconds=0.0).measured


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("alignment_ok", Selection(kind="image"), "alignment_ok is about agreement, not image"),
        ("alignment_ok", Selection(modality="text"), "alignment_ok is about agreement, not text"),
        ("wer", Selection(kind="colour"), "wer is about audio, not colour"),
        ("bystander_ok", Selection(audience="canary"), "bystander_ok is about bystander, not canary"),
        ("canary_exact", Selection(audience="all"), "canary_exact is about canary, not all"),
    ],
)
def test_a_filter_narrows_an_sli_and_never_replaces_it(name: str, asked: Selection, reason: str) -> None:
    records = [record(n, kind=kind, modality=kind) for n, kind in enumerate(("image", "audio", "agreement", "text"))]
    answer = measure(name, records, window_seconds=10, selection=asked)
    assert (answer.measured, answer.reason) == (False, reason)


def test_filters_that_say_what_the_sli_is_about_pass() -> None:
    records = [record(0, kind="audio", modality="audio")]
    for asked in (Selection(kind="audio"), Selection(modality="audio"), Selection(audience="canary")):
        assert value("wer", records, selection=asked) == 0.0


def test_selection() -> None:
    records = [
        record(0, kind="image", modality="image"),
        record(1, kind="colour", modality="image", exact=False, expected="red"),
        record(2, exact=False, audience="bystander"),
    ]
    assert value("canary_exact", records, selection=Selection(modality="image")) == 0.5
    assert value("canary_exact", records, selection=Selection(kind="image")) == 1.0
    assert value("ok_ratio", records, selection=Selection(audience="all")) == 1.0
    empty = measure("canary_exact", records, window_seconds=10, selection=Selection(kind="audio"))
    assert (empty.measured, empty.samples, empty.reason) == (False, 0, "no requests of this kind in the window")


def test_a_load_that_lags_says_so_instead_of_a_latency() -> None:
    records = [record(n, lag_seconds=0.6 if n < 2 else 0.0) for n in range(10)]
    answer = measure("ttft", records, window_seconds=10)
    assert not answer.measured
    assert "the load itself lagged: 2 of 10" in answer.reason
    assert value("ok_ratio", records) == 1.0  # answered all the same
    own_fault = [failed(n, lag_seconds=12.0) if n < 2 else record(n) for n in range(10)]
    assert not measure("ok_ratio", own_fault, window_seconds=10).measured


def test_canaries_without_a_reference_are_no_data() -> None:
    answer = measure("canary_exact", [record(exact=None, expected="")], window_seconds=10)
    assert (answer.measured, answer.samples) == (False, 0)


@pytest.mark.parametrize("name", INDICATORS)
def test_no_records_is_no_data(name: str) -> None:
    answer = measure(name, [], window_seconds=10)
    assert answer.to_json() == {
        "measured": False,
        "value": 0.0,
        "unit": INDICATORS[name].unit,
        "samples": 0,
        "window_seconds": 10.0,
        "reason": "no requests of this kind in the window",
    }


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
LIKE_A_RECORD = st.fixed_dictionaries(
    {"id": st.text(max_size=5)},
    optional={
        "kind": st.sampled_from(["image", "audio", "text", "agreement", "colour", "?"]) | ANYTHING,
        "audience": st.sampled_from(["canary", "bystander"]) | ANYTHING,
        "modality": st.sampled_from(["image", "audio", "text", "agreement"]),
        "scheduled_at": st.floats() | ANYTHING,
        "first_token_at": st.none() | st.floats() | ANYTHING,
        "last_token_at": st.none() | st.floats(),
        "ended_at": st.floats() | st.integers(),
        "timeout_seconds": st.floats(),
        "lag_seconds": st.floats(),
        "chunks": st.integers() | ANYTHING,
        "error": st.sampled_from(["", "timeout"]),
        "exact": st.none() | st.booleans(),
        "leak": st.booleans(),
        "expected": st.text(max_size=8),
        "answer": st.text(max_size=80),
    },
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(LIKE_A_RECORD | ANYTHING, max_size=30) | ANYTHING,
    st.floats() | st.integers(),
    st.none() | st.floats(),
)
def test_whatever_the_records_hold_answers_are_finite_and_strict(
    records: Any, seconds: float, threshold: float | None
) -> None:
    for name in INDICATORS:
        answer = measure(name, records, window_seconds=seconds, threshold_seconds=threshold)
        assert math.isfinite(answer.value)
        assert math.isfinite(answer.window_seconds)
        assert answer.measured or (answer.value == 0.0 and answer.reason)
        json.dumps(answer.to_json(), allow_nan=False)


def test_unreadable_records_are_mentioned() -> None:
    answer = measure("ok_ratio", [record(), {"id": 3}], window_seconds=10)
    assert (answer.value, answer.reason) == (1.0, "1 records could not be read")
