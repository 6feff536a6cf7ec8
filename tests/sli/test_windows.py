"""The worst window decides: an outage that heals before the end still shows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.sli.indicators import measure
from chaos_mm.sli.measurement import Measurement
from chaos_mm.sli.records import Record
from chaos_mm.sli.windows import WorstWindow, between, by_schedule, sliding, worst
from tests.sli.samples import failed, record


def ok_ratio(records: Sequence[Record], seconds: float) -> Measurement:
    return measure("ok_ratio", list(records), window_seconds=seconds)


def of_a_minute(records: Sequence[Record]) -> WorstWindow:
    return worst(records, ok_ratio, start=0.0, end=60.0, window_seconds=10.0)


def test_ten_broken_seconds_in_a_minute_are_found() -> None:
    # T05: broken from 20 s to 30 s, healed long before the end.
    records = [failed(t, float(t)) if 20 <= t < 30 else record(t, float(t)) for t in range(60)]
    found = of_a_minute(records)
    assert found.answer is not None
    assert (found.answer.value, found.answer.samples, found.started_at) == (0.0, 10, 20.0)
    whole = ok_ratio(records, 60.0)
    assert whole.value == pytest.approx(50 / 60)


def test_records_need_no_order() -> None:
    records = [failed(t, float(t)) if t == 31 else record(t, float(t)) for t in range(60)]
    assert of_a_minute(records[::-1]) == of_a_minute(records)


def test_windows_without_data_are_counted() -> None:
    found = of_a_minute([record(t, float(t)) for t in range(20)])
    assert found.answer is not None
    assert (found.answer.value, found.windows, found.without_data) == (1.0, 51, 31)
    nothing = of_a_minute([])
    assert (nothing.answer, nothing.without_data) == (None, 51)


def test_windows_with_too_few_samples_do_not_count() -> None:
    records = [*(record(t, float(t)) for t in range(30)), failed(99, 45.0)]
    found = worst(records, ok_ratio, start=0.0, end=60.0, window_seconds=10.0, min_samples=5)
    assert found.answer is not None
    # From 26 s on a window holds at most 4; without the least one failed request alone would be the worst window.
    assert (found.answer.value, found.answer.samples, found.windows, found.without_data) == (1.0, 10, 51, 25)
    assert of_a_minute(records).answer == ok_ratio([records[-1]], 10.0)


def test_lower_is_better_for_some() -> None:
    def leaks(records: Sequence[Record], seconds: float) -> Measurement:
        return measure("leak_count", list(records), window_seconds=seconds)

    records = [record(t, float(t), leak=t in (3, 4)) for t in range(30)]
    found = worst(records, leaks, start=0.0, end=30.0, window_seconds=10.0, higher_is_better=False)
    assert found.answer is not None
    assert found.answer.value == 2.0


def test_a_span_shorter_than_the_window_is_one_window() -> None:
    assert [begin for begin, _ in sliding([record()], 0.0, 5.0, 10.0)] == [0.0]


@pytest.mark.parametrize(("window", "step"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)])
def test_windows_need_a_length_and_a_step(window: float, step: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        list(sliding([], 0.0, 10.0, window, step))


@given(
    st.lists(st.floats(0, 100), max_size=40),
    st.floats(0, 50),
    st.floats(0.1, 60),
    st.floats(0.5, 30),
    st.floats(0.25, 5),
)
def test_windows_cover_the_span_and_hold_what_was_due_then(
    due: list[float], start: float, length: float, window: float, step: float
) -> None:
    records = [record(n, at) for n, at in enumerate(due)]
    end = start + length
    windows = list(sliding(records, start, end, window, step))
    assert windows[0][0] == start
    assert min(end, windows[-1][0] + window) == pytest.approx(end)
    for begin, inside in windows:
        stop = min(end, begin + window)
        assert sorted(r.n for r in inside) == sorted(r.n for r in records if begin <= r.scheduled_at < stop)


def test_between_takes_the_start_and_leaves_the_end() -> None:
    ordered = by_schedule([record(n, float(n)) for n in (3, 1, 2, 0)])
    assert [r.n for r in between(ordered, 1.0, 3.0)] == [1, 2]


def test_windows_of_which_records_are_forgotten_have_no_data() -> None:
    records = [record(n, float(n)) for n in range(20)]
    found = worst(records, ok_ratio, start=0.0, end=20.0, window_seconds=5.0, known_from=4.0)
    assert (found.windows, found.without_data, found.started_at) == (16, 5, 5.0)
