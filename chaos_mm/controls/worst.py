"""The worst window of every objective in every phase: what a verdict is made of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.facts import Window
from chaos_mm.controls.measuring import Load, no_data
from chaos_mm.controls.run import Run
from chaos_mm.core.errors import ChaosMMError, PointUnreachable

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["Sampled", "WorstWindows", "from_samples"]

Answer = dict[str, Any]


@dataclass
class Sampled:
    """What is kept of a run's own samples of one objective in one phase, each over a whole window that ended a second
    after the one before: how many had enough requests, and the worst. A run may last for days."""

    objective: "Objective"
    judged: int = 0
    worst: Answer | None = None

    def add(self, sample: Answer) -> None:
        """One more answer, with ``seconds``: when in the phase it was taken."""
        if not sample.get("measured") or int(sample["samples"]) < self.objective.min_samples:
            return
        self.judged += 1
        if self.worst is None or _worse(self.objective, sample, self.worst):
            self.worst = sample


class WorstWindows:
    """Asks the load when a phase is over, and again at the end; the last answer counts, unless the load has forgotten
    since: it keeps only so many records, and a new one in its place knows none.

    Where the load cannot say, the run's own samples over whole windows are judged; what they do not cover is no data.
    They are heard as well where the load has forgotten the beginning of a phase.
    """

    def __init__(
        self,
        run: Run,
        named: "Sequence[Objective]",
        guards: "Sequence[Objective]",
        whole: Mapping[tuple[str, str], Sampled],
    ) -> None:
        self._run, self.named, self.guards, self._whole = run, named, guards, whole
        self._answers: dict[tuple[str, str], Answer] = {}
        self._lengths: dict[str, float] = {}

    @property
    def objectives(self) -> "list[Objective]":
        """Those the file names, then those that only guard."""
        return [*self.named, *self.guards]

    def ask(self, phase: str, seconds: float) -> bool:
        """Ask for every objective in a phase that has lasted ``seconds``; whether the load can be reached."""
        self._lengths[phase] = seconds
        for one in self.objectives:
            try:
                found = Load(self._run.configuration, self._run.secrets).worst(one, self._run.id, phase)
            except PointUnreachable:
                return False
            except ChaosMMError as error:
                found = {**no_data(f"{one.name}: {error}"), "windows": 0, "without_data": 0, "started_seconds": 0.0}
            known = self._answers.get((one.name, phase))
            if known is None or not _forgot(found, known):
                self._answers[one.name, phase] = found
        return True

    def settled(self, phase: str) -> bool:
        """Whether the last answers are final: every request of the phase has ended, or the load does not say. One that
        is open may count as a miss by now and be answered well all the same."""
        answers = [self._answers.get((one.name, phase), {}) for one in self.named]
        decided = (_number(one, "settled_seconds") >= _number(one, "phase_seconds") for one in answers)
        return all(decided) and not any(_number(one, "open") for one in answers)

    def answer(self, objective: "Objective", phase: str) -> Answer:
        """The worst window as the load says it, with ``met`` and ``reason`` of the objective's judgement."""
        found = self._answers.get((objective.name, phase))
        if found is None or _number(found, "forgotten_seconds") > 0:
            sampled = self._whole.get((objective.name, phase), Sampled(objective))
            own = from_samples(sampled, self._lengths.get(phase, 0.0))
            found = own if found is None else _both(objective, found, own)
        judged = objective.judge({**found, "samples": max(int(found.get("samples") or 0), 0)})
        return {**found, "met": judged.met, "reason": judged.reason}

    def windows(self, phases: Sequence[str]) -> tuple[Window, ...]:
        """Of the objectives that the file names, for the verdict."""
        return tuple(_window(one.name, phase, self.answer(one, phase)) for phase in phases for one in self.named)

    def guarded(self, phases: Sequence[str]) -> tuple[Window, ...]:
        """Of the guards that the file does not name and that have no hold time: what may not be broken for a moment
        may not be broken unseen either, after the last sample or in the recovery."""
        strict = [one for one in self.guards if not one.hold_seconds]
        return tuple(_window(one.name, phase, self.answer(one, phase)) for phase in phases for one in strict)

    def worst_of(self, phase: str) -> tuple[str, Answer] | None:
        """(objective, answer) of the named objective that is nearest to its bound or furthest beyond it."""
        found = [(one, self.answer(one, phase)) for one in self.named]
        if not found:
            return None
        one, answer = min(found, key=lambda pair: _room(*pair))
        return one.name, answer


def from_samples(sampled: Sampled, phase_seconds: float) -> Answer:
    """The worst of a run's own samples as if the load had said it.

    ``windows`` is how many a phase of that length holds: what was not sampled, or held too few requests, has no data.
    """
    objective, worst = sampled.objective, sampled.worst
    windows = max(1, math.floor(phase_seconds - objective.window_seconds) + 1, sampled.judged)
    counts = {"windows": windows, "without_data": windows - sampled.judged, "started_seconds": 0.0}
    if worst is None:
        reason = "the load could not be asked, and no sample over a whole window was taken"
        return {**no_data(reason, window_seconds=objective.window_seconds), **counts}
    shown = {key: worst[key] for key in ("measured", "value", "unit", "samples", "window_seconds")}
    began = max(0.0, float(worst["seconds"]) - objective.window_seconds)
    return {**shown, **counts, "started_seconds": began, "reason": ""}


def _both(objective: "Objective", told: Answer, own: Answer) -> Answer:
    """The worse of two answers about the same phase; what either has covered has data."""
    if own.get("measured") is not True:
        return told
    found = own if told.get("measured") is not True or _worse(objective, own, told) else told
    fuller = min((told, own), key=lambda one: _number(one, "without_data") / max(1.0, _number(one, "windows")))
    return {**found, "windows": fuller["windows"], "without_data": fuller["without_data"]}


def _forgot(now: Answer, before: Answer) -> bool:
    """Whether a later answer knows less of the phase than an earlier one; a load in its place knows of no windows."""
    if not _number(now, "windows"):
        return _number(before, "windows") > 0
    return _number(now, "forgotten_seconds") > _number(before, "forgotten_seconds")


def _number(answer: Answer, name: str) -> float:
    return float(answer.get(name) or 0.0)


def _worse(objective: "Objective", one: Answer, other: Answer) -> bool:
    gap = float(one["value"]) - float(other["value"])
    return gap < 0 if objective.comparison in ("gte", "gt") else gap > 0


def _window(objective: str, phase: str, answer: Answer) -> Window:
    windows, without = int(answer.get("windows") or 0), int(answer.get("without_data") or 0)
    # Too few samples are no data however the value looks; the load says so as well.
    measured = answer.get("measured") is True and windows > without
    return Window(objective, phase, measured, bool(answer.get("met")), windows, without, str(answer.get("reason", "")))


def _room(objective: "Objective", answer: Answer) -> float:
    """How much of its error budget is left, as in the closing table; nothing measured comes first."""
    if answer.get("measured") is not True:
        return -math.inf
    value, bound = float(answer["value"]), objective.threshold
    if objective.comparison in ("gte", "gt"):
        return (value - bound) / (1 - bound if bound < 1 else bound)
    return (bound - value) / bound if bound > 0 else 1.0 - value
