"""Which records a question over HTTP is about, and the SLIs over them."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos_mm.core.errors import BadRequest, ChaosMMError
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.sli import objectives
from chaos_mm.sli.indicators import INDICATORS, Selection, measure
from chaos_mm.sli.measurement import Measurement, no_data
from chaos_mm.sli.openslo import FILTERS
from chaos_mm.sli.records import PHASES, Record
from chaos_mm.sli.recovery import recovery_seconds

DEFAULT_WINDOW_SECONDS = 60.0
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
    """The settled records of a question and the time they stand for."""

    records: list[Record]
    seconds: float
    phase_seconds: float
    pending: int


class View:
    """Reads store and marks; thread-safe as they are."""

    def __init__(
        self, store: Store, marks: Marks, objectives_dir: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._marks, self._objectives_dir, self._clock = store, marks, objectives_dir, clock

    def slis(self, question: Question) -> dict[str, Any]:
        """Every SLI, how long the phase has lasted, and how many of its requests are still open."""
        seen = self._seen(question)
        found = {name: self._measure(name, question, seen).to_json() for name in INDICATORS}
        if question.run:
            found[RECOVERY] = self._recovery(question, "").to_json()
        return {
            "slis": found,
            "run": question.run,
            "phase": question.phase,
            "phase_seconds": seen.phase_seconds,
            "pending": seen.pending,
        }

    def sli(self, name: str, question: Question, names: str = "") -> Measurement:
        """One SLI. Raises BadRequest for a name that is none."""
        if name == RECOVERY:
            return self._recovery(question, names)
        if name not in INDICATORS:
            raise BadRequest(f"SLI is {name[:40]!r}; allowed: {', '.join((*INDICATORS, RECOVERY))}")
        return self._measure(name, question, self._seen(question))

    def records(self, run: str, phase: str, since: float, limit: int) -> Iterator[Record]:
        """Records of a run (and phase), with that run's phases written in; without a run, as they were kept."""
        found = self._store.since(max(since, self._marks.spans(run)[0].start) if run else since)
        shown = [self._placed(record, run) for record in found] if run else found
        chosen = [record for record in shown if phase in ("", record.phase)]
        return iter(chosen[-limit:] if limit else chosen)

    def _placed(self, record: Record, run: str) -> Record:
        return replace(record, run=run, phase=self._marks.phase_at(run, record.scheduled_at))

    def _measure(self, name: str, question: Question, seen: Seen) -> Measurement:
        return measure(
            name,
            seen.records,
            window_seconds=seen.seconds,
            selection=question.selection,
            threshold_seconds=question.threshold_seconds,
        )

    def _spans(self, question: Question, now: float) -> list[tuple[float, float]]:
        """(start, end) of the phase asked for, so far."""
        if not question.run:
            return [(-math.inf, now)]
        wanted = (question.phase,) if question.phase else PHASES[:-1]
        spans = [span for span in self._marks.spans(question.run) if span.phase in wanted]
        return [(span.start, now if span.end is None else span.end) for span in spans]

    def _seen(self, question: Question) -> Seen:
        """What is settled of the phase; its last ``window_seconds`` when given."""
        now = self._clock()
        spans = self._spans(question, now)
        if not spans:
            return Seen([], 0.0, 0.0, 0)
        window = question.window_seconds or (0.0 if question.run else DEFAULT_WINDOW_SECONDS)
        settled = min(self._store.settled_until(now), spans[-1][1])
        first = settled - window if window else spans[0][0]
        cut = [(max(start, first), min(end, settled)) for start, end in spans]
        records = [record for record in self._store.since(first) if _within(record.scheduled_at, cut)]
        pending = sum(_within(due, spans) for due in self._store.pending(now))
        lasted = sum(end - start for start, end in spans) if question.run else 0.0
        return Seen(records, sum(max(0.0, end - start) for start, end in cut), lasted, pending)

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
        released, end = spans[-1].start, spans[-1].end or math.inf
        until = min(end, self._store.settled_until(self._clock()))
        chosen = [found[name] for name in wanted or found]
        return recovery_seconds(self._store.since(released), chosen, released_at=released, until=until)


def _within(at: float, spans: Sequence[tuple[float, float]]) -> bool:
    return any(start <= at < end for start, end in spans)


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
