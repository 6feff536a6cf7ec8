"""Sliding windows: the worst one decides, so an outage that healed before the end still shows.

A verdict over a whole phase averages a ten-second outage away; the last value misses it altogether.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from chaos_mm.sli.measurement import Measurement


class Due(Protocol):
    """Something that was due at a moment: a record, or what it says of one SLI."""

    @property
    def scheduled_at(self) -> float:
        """Seconds on the load's clock."""


Item = TypeVar("Item", bound=Due)
Measure = Callable[[Sequence[Item], float], Measurement]  # (records of a window, its seconds) -> one SLI


@dataclass(frozen=True, slots=True)
class WorstWindow:
    """The worst measured window, where it began, and how many windows had nothing, or too little, to measure.

    ``answer`` is None when no window was measured. Whoever judges must look at ``without_data`` too.
    """

    answer: Measurement | None
    started_at: float
    windows: int
    without_data: int


def by_schedule(records: Sequence[Item]) -> list[Item]:
    """The records in the order in which they were due, as windows need them."""
    return sorted(records, key=lambda record: record.scheduled_at)


def between(ordered: Sequence[Item], start: float, end: float) -> Sequence[Item]:
    """The records due in start ≤ t < end, of records in order of schedule."""
    due = [record.scheduled_at for record in ordered]
    return ordered[bisect_left(due, start) : bisect_left(due, end)]


def sliding(
    records: Sequence[Item], start: float, end: float, window_seconds: float, step_seconds: float = 1.0
) -> Iterator[tuple[float, Sequence[Item]]]:
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
    records: Sequence[Item],
    measure: Measure[Item],
    *,
    start: float,
    end: float,
    window_seconds: float,
    step_seconds: float = 1.0,
    higher_is_better: bool = True,
    min_samples: int = 0,
    known_from: float = -math.inf,
) -> WorstWindow:
    """The worst of all sliding windows over records due in start ≤ t < end that hold at least ``min_samples``.

    A window that begins by ``known_from`` has no data: some of its records are no longer known.
    """
    found: Measurement | None = None
    began, count, empty = start, 0, 0
    for begin, inside in sliding(records, start, end, window_seconds, step_seconds):
        answer = measure(inside, min(window_seconds, end - start))
        count += 1
        if begin <= known_from or not answer.measured or answer.samples < min_samples:
            empty += 1
        elif found is None or (answer.value < found.value if higher_is_better else answer.value > found.value):
            found, began = answer, begin
    return WorstWindow(found, began, count, empty)
