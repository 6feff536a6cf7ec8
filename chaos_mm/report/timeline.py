"""What a chart of a run needs: the points of each objective, the phases, the time under fault, and what happened."""

import itertools
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos_mm.report.events import Event, Log, when
from chaos_mm.report.folder import RunReport
from chaos_mm.report.loose import flag, mapping, number, text
from chaos_mm.report.parts import Objective, unit_of
from chaos_mm.report.wording import clipped

__all__ = ["Mark", "Point", "Series", "Span", "Timeline", "series", "timeline"]

_LONGEST_STEP_SECONDS = 3.0
_MOST_SPANS = 200  # what a chart can show; a log that holds more is nobody's run


@dataclass(frozen=True, slots=True)
class Point:
    """An objective's value at ``at`` seconds after arming, over the window that ends there; None: not measured.

    ``whole``: the window lies wholly in the phase, so that it counts.
    """

    at: float
    value: float | None
    met: bool
    whole: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A time with a name, in seconds after arming."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment. ``kind``: halt, signal, recovered."""

    kind: str
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Series:
    """One objective over time. ``gaps``: spans in which nothing is known. ``worst``: where each phase was judged."""

    objective: Objective
    unit: str
    points: tuple[Point, ...]
    gaps: tuple[Span, ...]
    worst: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """What all charts of a run share; everything lies within 0 … ``end``."""

    end: float
    phases: tuple[Span, ...]
    faults: tuple[Span, ...]
    marks: tuple[Mark, ...]


def timeline(run: RunReport) -> Timeline:
    """Phases, time under fault and marks of a run, from its events."""
    end = max([run.log.end, *(phase.began + (phase.seconds or 0) for phase in run.phases)], default=0.0)
    faults = tuple(itertools.islice(_faults(run.log, end), _MOST_SPANS))
    marks = sorted(itertools.chain(_happened(run.log), _recovered(run, faults)), key=lambda mark: mark.at)
    phases = tuple(itertools.islice(_phases(run, end), _MOST_SPANS))
    return Timeline(end, phases, faults, tuple(mark for mark in marks if mark.at <= end))


def _phases(run: RunReport, end: float) -> Iterator[Span]:
    for phase in run.phases:
        if phase.name != "end":
            stop = end if phase.seconds is None else min(end, phase.began + phase.seconds)
            yield Span(phase.name, phase.began, max(phase.began, stop))


def _faults(log: Log, end: float) -> Iterator[Span]:
    """From each injection to its release; a release that nobody wrote down is as far as the log goes."""
    released = {text(event.get("lease")): when(event) for event in reversed(log.named("released"))}
    for event in log.named("inject"):
        lease, start = text(event.get("lease")), when(event)
        yield Span(lease, start, max(start, min(end, released.get(lease, end))))


def _happened(log: Log) -> Iterator[Mark]:
    for event in log.named("guard", "signal", "residue"):
        if event.get("event") == "guard":
            yield Mark("halt", when(event), f"halted: {clipped(text(event.get('objective')), 24)}")
        elif event.get("event") == "signal":
            yield Mark("signal", when(event), clipped(text(event.get("name"), "signal"), 24))
        elif number(event.get("live")):
            yield Mark("halt", when(event), "residue found")


def _recovered(run: RunReport, faults: Sequence[Span]) -> Iterable[Mark]:
    """All objectives met again: ``recovery_seconds`` after the last release; no mark when nothing was ever broken."""
    found = run.recovery
    if found is None or not found.measured or found.value <= 0 or not faults:
        return []
    return [Mark("recovered", max(span.end for span in faults) + found.value, "recovered")]


def series(run: RunReport, objective: Objective) -> Series:
    """One objective's points in the order of time."""
    points = sorted(_points(run.log.named("sample"), objective.name), key=lambda point: point.at)
    answers = [window.unit for window in objective.phases.values() if window.unit]
    unit = unit_of(objective.sli) or next(iter(answers), "")
    return Series(objective, unit, tuple(points), tuple(_gaps(points)), tuple(_worst(run, objective)))


def _worst(run: RunReport, objective: Objective) -> Iterator[Point]:
    """The worst window of each phase, at its end, as the charts show windows."""
    for phase in run.phases:
        answer = objective.phases.get(phase.name)
        if answer is not None and answer.measured and answer.started_seconds is not None:
            end = phase.began + answer.started_seconds + (answer.window_seconds or 0.0)
            yield Point(end, answer.value, answer.met, True)


def _points(samples: Sequence[Event], name: str) -> Iterator[Point]:
    for event in samples:
        answer = mapping(mapping(event.get("answers")).get(name))
        if answer:
            value = number(answer.get("value")) if flag(answer.get("measured")) else None
            yield Point(when(event), value, flag(answer.get("met")), flag(answer.get("whole")))


def _gaps(points: Sequence[Point]) -> Iterator[Span]:
    """Between the last point before and the first after: where none was measured, or none was written for long."""
    known = [point.at for point in points if point.value is not None]
    unknown = [point.at for point in points if point.value is None]
    if not known and unknown:
        yield Span("no data", unknown[0], unknown[-1])
    if not known:
        return
    longest = max(_LONGEST_STEP_SECONDS, 3 * _step(points))
    edges = [min(points[0].at, known[0]), *known, max(points[-1].at, known[-1])]
    for before, after in itertools.pairwise(edges):
        if after - before > longest or bisect_right(unknown, after) > bisect_left(unknown, before):
            yield Span("no data", before, after)


def _step(points: Sequence[Point]) -> float:
    steps = [b.at - a.at for a, b in itertools.pairwise(points)]
    return statistics.median(steps) if steps else 0.0
