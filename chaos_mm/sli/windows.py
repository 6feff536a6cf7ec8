"""Sliding windows: the worst one decides, so an outage that healed before the end still shows.

A verdict over a whole phase averages a ten-second outage away; the last value misses it altogether.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from chaos_mm.sli.measurement import Measurement
from chaos_mm.sli.records import Record

Measure = Callable[[Sequence[Record], float], Measurement]  # (records of a window, its seconds) -> one SLI


@dataclass(frozen=True, slots=True)
class WorstWindow:
    """The worst measured window, where it began, and how many windows had nothing to measure.

    ``answer`` is None when no window was measured. Whoever judges must look at ``without_data`` too.
    """

    answer: Measurement | None
    started_at: float
    windows: int
    without_data: int


def by_schedule(records: Sequence[Record]) -> list[Record]:
    """The records in the order in which they were due, as windows need them."""
    return sorted(records, key=lambda record: record.scheduled_at)


def between(ordered: Sequence[Record], start: float, end: float) -> Sequence[Record]:
    """The records due in start ≤ t < end, of records in order of schedule."""
    due = [record.scheduled_at for record in ordered]
    return ordered[bisect_left(due, start) : bisect_left(due, end)]


def sliding(
    records: Sequence[Record], start: float, end: float, window_seconds: float, step_seconds: float = 1.0
) -> Iterator[tuple[float, Sequence[Record]]]:
    """(start, records) of each whole window within start … end, a step apart; the last one always ends at ``end``.

    A span shorter than the window is one window. Raises ValueError when the window or the step is not positive.
    """
    if not (window_seconds > 0 and step_seconds > 0):
        raise ValueError(f"window {window_seconds} s and step {step_seconds} s must be above 0")
    ordered = by_schedule(records)
    due = [record.scheduled_at for record in ordered]
    for begin in _starts(start, end, window_seconds, step_seconds):
        stop = min(end, begin + window_seconds)
        yield begin, ordered[bisect_left(due, begin) : bisect_left(due, stop)]


def _starts(start: float, end: float, window_seconds: float, step_seconds: float) -> Iterator[float]:
    last = max(start, end - window_seconds)
    whole = int((last - start) / step_seconds)
    yield from (start + index * step_seconds for index in range(whole + 1))
    if start + whole * step_seconds < last:
        yield last


def worst(
    records: Sequence[Record],
    measure: Measure,
    *,
    start: float,
    end: float,
    window_seconds: float,
    step_seconds: float = 1.0,
    higher_is_better: bool = True,
) -> WorstWindow:
    """The worst of all sliding windows over records due in start ≤ t < end."""
    found: Measurement | None = None
    began, count, empty = start, 0, 0
    for begin, inside in sliding(records, start, end, window_seconds, step_seconds):
        answer = measure(inside, min(window_seconds, end - start))
        count += 1
        if not answer.measured:
            empty += 1
        elif found is None or (answer.value < found.value if higher_is_better else answer.value > found.value):
            found, began = answer, begin
    return WorstWindow(found, began, count, empty)
