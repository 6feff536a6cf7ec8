"""The worst window of a phase, as verdicts ask for it: every whole window counts, an outage that healed as well.

Windows of the length asked for lie wholly within the phase, a second apart, the last one ending with it; a phase that
is shorter is one window. What the last requests will come to may not be known yet: ``settled_seconds`` says how much of
the phase is decided (see ``view``) and ``open`` how many of its requests have no answer, some of them counted as misses
so far. Whoever asks again once those are ``phase_seconds`` and 0 has the final answer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos_mm.core.errors import BadRequest
from chaos_mm.load.view import RECOVERY, Question, Seen, View, patience_of, read_number
from chaos_mm.sli.indicators import INDICATORS, Look, conclude, conflict, looks
from chaos_mm.sli.measurement import Measurement, no_data
from chaos_mm.sli.windows import WorstWindow, between, by_schedule, worst

_OWN = ("min_samples", "worse")
_WORSE = ("low", "high")


@dataclass(frozen=True, slots=True)
class WorstQuestion:
    """The query of ``/worst``. ``lower_is_worse``: which way ``worse`` points; None: as the SLI itself says."""

    about: Question
    min_samples: int
    lower_is_worse: bool | None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "WorstQuestion":
        """Raises BadRequest naming the field, what was given and what is allowed."""
        about = Question.read({name: value for name, value in query.items() if name not in _OWN})
        if not about.phase:
            raise BadRequest("the worst window belongs to a phase of a run: give run and phase")
        if about.window_seconds < 1.0:
            raise BadRequest(f"window_seconds is {about.window_seconds:g}; allowed: a number from 1 to 86400")
        worse = query.get("worse", "")
        if worse not in ("", *_WORSE):
            raise BadRequest(f"worse is {worse[:40]!r}; allowed: {', '.join(_WORSE)}")
        least = int(read_number(query, "min_samples", 1.0, 0.0, 1e9))
        return cls(about, least, worse == "low" if worse else None)


class Worst:
    """Finds worst windows in a view; thread-safe as that is."""

    def __init__(self, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self._view, self._clock = view, clock

    def find(self, name: str, question: WorstQuestion) -> dict[str, Any]:
        """The worst window's measurement with ``windows``, ``without_data``, ``started_seconds`` (within the phase),
        ``phase_seconds``, ``settled_seconds``, ``open`` and ``forgotten_seconds`` (of its beginning, beyond the records
        that are kept). Raises BadRequest for a name that has no windows."""
        if name not in INDICATORS:
            hint = "; it is asked at /slis/recovery_seconds" if name == RECOVERY else ""
            raise BadRequest(f"SLI is {name[:40]!r}; allowed: {', '.join(INDICATORS)}{hint}")
        about = question.about
        patience = patience_of(name, about.threshold_seconds)
        whole = Question(about.run, about.phase, 0.0, about.threshold_seconds, about.selection)
        seen = self._view.seen(whole, self._clock(), patience)
        found, before = _worst_of(name, question, seen)
        strange = conflict(name, about.selection)
        nothing = no_data(strange or _nothing(question, found), INDICATORS[name].unit, 0, about.window_seconds)
        return {
            **(found.answer or nothing).to_json(),
            "windows": found.windows,
            "without_data": found.without_data,
            "started_seconds": before,
            "phase_seconds": seen.phase_seconds,
            "settled_seconds": seen.seconds,
            "open": len(seen.open),
            "forgotten_seconds": sum(max(0.0, min(end, seen.known_from) - start) for start, end in seen.spans),
        }


def _worst_of(name: str, question: WorstQuestion, seen: Seen) -> tuple[WorstWindow, float]:
    """(worst of all stretches of the phase, how far into the phase it began)."""
    about = question.about
    strange = conflict(name, about.selection)
    chosen = [] if strange else by_schedule(looks(name, seen.records, about.selection, about.threshold_seconds))
    measure = _measure(name, seen)
    lower = INDICATORS[name].higher_is_better if question.lower_is_worse is None else question.lower_is_worse
    found: list[tuple[WorstWindow, float]] = []
    passed = 0.0
    for start, end in seen.spans:
        one = worst(
            between(chosen, start, end),
            measure,
            start=start,
            end=end,
            window_seconds=about.window_seconds,
            higher_is_better=lower,
            min_samples=question.min_samples,
            known_from=seen.known_from,
        )
        found.append((one, passed + one.started_at - start))
        passed += end - start
    windows, empty = sum(one.windows for one, _ in found), sum(one.without_data for one, _ in found)
    measured = [(one.answer.value, before, one.answer) for one, before in found if one.answer is not None]
    if not measured:
        return WorstWindow(None, 0.0, windows, empty), 0.0
    _, began, answer = min(measured, key=lambda one: one[0] if lower else -one[0])
    return WorstWindow(answer, began, windows, empty), began


def _measure(name: str, seen: Seen) -> Callable[[Sequence[Look], float], Measurement]:
    """The SLI of a window. A percentile is not known while a request of that window is open."""
    waiting = {record.scheduled_at for record in seen.records if record.error == "open"}
    unit = INDICATORS[name].unit

    def measure(inside: Sequence[Look], seconds: float) -> Measurement:
        if waiting and unit == "s" and any(look.scheduled_at in waiting for look in inside):
            return no_data("requests of this window are open", unit, len(inside), seconds)
        return conclude(name, inside, seconds)

    return measure


def _nothing(question: WorstQuestion, found: WorstWindow) -> str:
    if not found.windows:
        return f"the phase {question.about.phase} has not begun, or none of its requests is decided yet"
    if found.windows == 1:
        return f"its only window cannot be measured with at least {question.min_samples} samples"
    return f"none of {found.windows} windows can be measured with at least {question.min_samples} samples"
