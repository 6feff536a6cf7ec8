"""Which records a question over HTTP is about, and the SLIs over them.

A request that has no answer yet is not judged at once, and not left out for ever either. For up to ``patience`` it
holds the window back: 2 s, or the limit of the SLI, or half as long again as the slowest good answer of the last minute
took, whichever is longest. From then on it is a miss so far, so that a service that went silent shows within that time
and not only at the timeout, while one whose answers always take five seconds is not taken for broken. Percentiles have
no value for such a request and say "no data". Either way the reason says how many requests are open and for how long.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chaos_mm.core.errors import BadRequest, ChaosMMError
from chaos_mm.load.marks import Marks, Span
from chaos_mm.load.store import Store
from chaos_mm.sli import objectives
from chaos_mm.sli.indicators import INDICATORS, Selection, measure, own_selection
from chaos_mm.sli.measurement import Measurement, no_data
from chaos_mm.sli.objectives import Objective
from chaos_mm.sli.openslo import FILTERS
from chaos_mm.sli.records import PHASES, Record
from chaos_mm.sli.recovery import recovery_seconds

DEFAULT_WINDOW_SECONDS = 60.0
PATIENCE_SECONDS = 2.0
_RECENT_SECONDS, _SLACK = 60.0, 1.5
RECOVERY = "recovery_seconds"
_QUERY = ("run", "phase", "window_seconds", "threshold_seconds", *FILTERS)


@dataclass(frozen=True, slots=True)
class Question:
    """The query of ``/slis``; ``window_seconds`` 0 is the whole phase."""

    run: str
    phase: str
    window_seconds: float
    threshold_seconds: float | None
    selection: Selection

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "Question":
        """Raises BadRequest naming the field, what was given and what is allowed."""
        for name in query:
            if name not in (*_QUERY, "objectives"):
                raise BadRequest(f"query {name[:40]!r} is unknown; allowed: {', '.join(_QUERY)}, objectives")
        for name, allowed in FILTERS.items():
            if query.get(name, "") not in ("", *allowed):
                raise BadRequest(f"{name} is {query[name][:40]!r}; allowed: {', '.join(allowed)}")
        phase = query.get("phase", "")
        if phase not in ("", *PHASES):
            raise BadRequest(f"phase is {phase[:40]!r}; allowed: {', '.join(PHASES)}")
        if phase and not query.get("run"):
            raise BadRequest("a phase belongs to a run: give run as well")
        limit = query.get("threshold_seconds")
        return cls(
            query.get("run", ""),
            phase,
            read_number(query, "window_seconds", 0.0, 0.0, 86_400.0),
            None if limit is None else read_number(query, "threshold_seconds", 0.0, 0.0, 86_400.0),
            Selection(query.get("audience", ""), query.get("modality", ""), query.get("kind", "")),
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The decided records of a question, overdue requests among them, and the time they stand for.

    ``open`` are all requests of the phase without an answer, with their ages in seconds. ``spans`` are the (start, end)
    of the phase as far as it is decided. ``known_from``: of what was due until then some records are no
    longer kept. ``unusual``: from which age on, in seconds, an open request is worth a word.
    """

    records: list[Record]
    seconds: float
    phase_seconds: float
    open: list[tuple[Record, float]]
    spans: list[tuple[float, float]] = field(default_factory=list)
    known_from: float = -math.inf
    unusual: float = PATIENCE_SECONDS


class View:
    """Reads store and marks; thread-safe as they are."""

    def __init__(
        self, store: Store, marks: Marks, objectives_dir: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._marks, self._objectives_dir, self._clock = store, marks, objectives_dir, clock
        self._born = clock()  # before it there was no load, so no time that records could stand for

    def slis(self, question: Question) -> dict[str, Any]:
        """Every SLI but recovery_seconds, how long the phase has lasted, and how many of its requests are open."""
        now = self._clock()
        patience = {name: patience_of(name, question.threshold_seconds) for name in INDICATORS}
        seen = {seconds: self.seen(question, now, seconds) for seconds in {*patience.values()}}
        found = {name: self._measure(name, question, seen[patience[name]]).to_json() for name in INDICATORS}
        return {
            "slis": found,
            "run": question.run,
            "phase": question.phase,
            "phase_seconds": seen[PATIENCE_SECONDS].phase_seconds,
            "pending": len(seen[PATIENCE_SECONDS].open),
        }

    def sli(self, name: str, question: Question, names: str = "") -> Measurement:
        """One SLI. Raises BadRequest for a name that is none."""
        if name == RECOVERY:
            return self._recovery(question, names)
        if name not in INDICATORS:
            raise BadRequest(f"SLI is {name[:40]!r}; allowed: {', '.join((*INDICATORS, RECOVERY))}")
        patience = patience_of(name, question.threshold_seconds)
        return self._measure(name, question, self.seen(question, self._clock(), patience))

    def records(self, run: str, phase: str, since: float, limit: int) -> Iterator[Record]:
        """Records of a run (and phase), with that run's phases written in; without a run, as they were kept."""
        found = self._store.since(max(since, self._marks.spans(run)[0].start) if run else since)
        shown = [self._placed(record, run) for record in found] if run else found
        chosen = [record for record in shown if phase in ("", record.phase)]
        return iter(chosen[-limit:] if limit else chosen)

    def _placed(self, record: Record, run: str) -> Record:
        return replace(record, run=run, phase=self._marks.phase_at(run, record.scheduled_at))

    def _measure(self, name: str, question: Question, seen: Seen) -> Measurement:
        wanted = own_selection(name, question.selection)
        ages = [age for record, age in seen.open if age > seen.unusual and wanted.meets(record)]
        unit, note = INDICATORS[name].unit, _note(ages)
        if ages and unit == "s":
            return no_data(f"a percentile is not known yet: {note}", unit, len(seen.records), seen.seconds)
        found = measure(
            name,
            seen.records,
            window_seconds=seen.seconds,
            selection=question.selection,
            threshold_seconds=question.threshold_seconds,
        )
        return replace(found, reason="; ".join(part for part in (found.reason, note) if part))

    def _spans(self, question: Question, now: float) -> list[tuple[float, float]]:
        """(start, end) of the phase asked for, so far."""
        if not question.run:
            return [(self._born, now)]
        wanted = (question.phase,) if question.phase else PHASES[:-1]
        spans = [span for span in self._marks.spans(question.run) if span.phase in wanted]
        return [(span.start, now if span.end is None else span.end) for span in spans]

    def seen(self, question: Question, now: float, patience: float) -> Seen:
        """What is decided of the phase; its last ``window_seconds`` when given. ``patience`` is the least."""
        spans = self._spans(question, now)
        if not spans:
            return Seen([], 0.0, 0.0, [])
        unusual = self._patient(now)
        patience = max(patience, unusual)
        window = question.window_seconds or (0.0 if question.run else DEFAULT_WINDOW_SECONDS)
        settled = min(self._store.settled_until(now, patience), spans[-1][1])
        first = settled - window if window else spans[0][0]
        cut = [(max(start, first), min(end, settled)) for start, end in spans]
        waiting = self._store.open(now)  # before the ended ones: what ends in between must not be in neither
        records = [record for record in self._with_overdue(first, waiting, now, patience) if _in(record, cut)]
        lasted = sum(end - start for start, end in spans) if question.run else 0.0
        aged = [(record, now - record.scheduled_at) for record in waiting if _in(record, spans)]
        decided = [(start, end) for start, end in cut if start < end]
        seconds = sum(end - start for start, end in decided)
        return Seen(records, seconds, lasted, aged, decided, self._store.forgotten_until, unusual)

    def _patient(self, now: float) -> float:
        """How long to wait for a service that answers as slowly as this one does when all is well."""
        recent = self._store.since(now - _RECENT_SECONDS)
        slowest = max((record.ended_at - record.scheduled_at for record in recent if record.ok), default=0.0)
        return max(PATIENCE_SECONDS, _SLACK * slowest)

    def _with_overdue(self, first: float, waiting: Sequence[Record], now: float, patience: float) -> list[Record]:
        """Records due from ``first`` on, and of the waiting requests those that are overdue."""
        ended = self._store.since(first)
        known = {record.id for record in ended}
        overdue = (record for record in waiting if now - record.scheduled_at > patience and record.id not in known)
        return [*ended, *(record for record in overdue if record.scheduled_at >= first)]

    def _recovery(self, question: Question, names: str) -> Measurement:
        """Release is the run's recovery mark."""
        if not question.run:
            raise BadRequest("recovery_seconds belongs to a run: give run as well")
        spans = [span for span in self._marks.spans(question.run) if span.phase == "recovery"]
        if not spans:
            return no_data("the run has no recovery phase yet", "s", 0, 0.0)
        try:
            found = objectives.load(self._objectives_dir or None)
        except ChaosMMError as error:
            return no_data(str(error), "s", 0, 0.0)
        wanted = [name for name in names.split(",") if name]
        for name in wanted:
            if name not in found:
                raise BadRequest(f"objective is {name[:40]!r}; allowed: {', '.join(found)}")
        return self._recovered([found[name] for name in wanted or found], spans[-1])

    def _recovered(self, chosen: Sequence[Objective], recovery: Span) -> Measurement:
        now = self._clock()
        limits = [(one.sli, one.filters.get("threshold_seconds")) for one in chosen if one.sli in INDICATORS]
        waits = [patience_of(sli, None if limit is None else float(limit)) for sli, limit in limits]
        patience = max([self._patient(now), *waits])
        until = min(recovery.end or math.inf, self._store.settled_until(now, patience))
        waiting = self._store.open(now)
        records = self._with_overdue(recovery.start, waiting, now, patience)
        return recovery_seconds(records, chosen, released_at=recovery.start, until=until)


def patience_of(name: str, threshold_seconds: float | None) -> float:
    """How long a request may be open until it is a miss so far: at least as long as the limit that makes it good."""
    indicator = INDICATORS[name]
    if not indicator.timed or indicator.unit == "s":
        return PATIENCE_SECONDS
    return max(PATIENCE_SECONDS, indicator.threshold_seconds if threshold_seconds is None else threshold_seconds)


def _note(ages: Sequence[float]) -> str:
    return f"{len(ages)} requests open for up to {max(ages):.1f} s" if ages else ""


def _in(record: Record, spans: Sequence[tuple[float, float]]) -> bool:
    return any(start <= record.scheduled_at < end for start, end in spans)


def read_number(query: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """A number of a query. Raises BadRequest naming it, what was given and the range."""
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise BadRequest(f"{name} is {text[:40]!r}; allowed: a number from {low:g} to {high:g}")
    return value
