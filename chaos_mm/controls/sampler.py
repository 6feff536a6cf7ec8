"""The eyes of a run: a thread that asks every objective about once a second, tells it, and stops the run for a guard.

It runs beside the guard thread and the keepalives and never holds them up: a load that hangs costs samples alone.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.evidence import look_at
from chaos_mm.controls.guards import Guards, is_whole
from chaos_mm.controls.measuring import Load, no_data
from chaos_mm.controls.run import Run
from chaos_mm.controls.signals import deaf
from chaos_mm.controls.worst import Sampled
from chaos_mm.core.errors import ChaosMMError

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["PERIOD_SECONDS", "Sampler", "ask"]

logger = logging.getLogger("chaostoolkit")
PERIOD_SECONDS = 1.0
_HITS = ("matched", "applied", "errored")
_SHOWN = ("measured", "value", "unit", "samples", "window_seconds", "reason")


def ask(run: Run, objective: "Objective", phase: str) -> dict[str, Any]:
    """The objective's SLI over its last window of a phase, as the load answers. Raises ChaosMMError."""
    load = Load(run.configuration, run.secrets)
    return load.sli(objective.sli, run.id, phase, window_seconds=objective.window_seconds, **objective.filters)


class Sampler(threading.Thread):
    """Samples until the run is closed. ``whole``: by (objective, phase), of the answers over whole windows."""

    def __init__(self, run: Run, objectives: "Sequence[Objective]", period_seconds: float = PERIOD_SECONDS) -> None:
        super().__init__(name=f"chaos-mm-sampler-{run.id}", daemon=True)
        self._run, self._objectives, self._period = run, objectives, period_seconds
        self._guards = Guards(objectives)
        self.whole: dict[tuple[str, str], Sampled] = {}
        self.done = threading.Event()

    def run(self) -> None:
        """The loop: a period is measured from beginning to beginning."""
        deaf()
        try:
            self._loop()
        except Exception as error:  # whatever it is: a run whose guards nobody watches must not go on
            self._run.request_stop("error", f"the sampler broke: {type(error).__name__}: {error}")

    def _loop(self) -> None:
        run, due = self._run, self._run.clock()
        while not self.done.wait(max(0.0, due - run.clock())) and not run.closed.is_set():
            due = max(due + self._period, run.clock())
            if run.phase not in ("", "end"):
                self.look()

    def look(self) -> None:
        """One round, in the phase that the run is in."""
        run, phase, since = self._run, self._run.phase, self._run.phase_since
        answers = {one.name: self._answer(one, phase) for one in self._objectives}
        seconds = run.clock() - since
        for one in self._objectives:
            if is_whole(one, answers[one.name]):
                self.whole.setdefault((one.name, phase), Sampled(one)).add({**answers[one.name], "seconds": seconds})
        run.events.write("sample", phase=phase, seconds=round(seconds, 3), answers=answers, hits=self._hits())
        if phase == "fault" and run.phase == phase:
            self._guard(answers)

    def _answer(self, objective: "Objective", phase: str) -> dict[str, Any]:
        try:
            found = ask(self._run, objective, phase)
        except ChaosMMError as error:
            found = no_data(str(error))
        judged = {"met": objective.judge(found).met, "whole": is_whole(objective, found)}
        return {**{key: found.get(key) for key in _SHOWN}, **judged}

    def _hits(self) -> dict[str, dict[str, int]]:
        found = {}
        for lease in list(self._run.leases.values()):
            evidence = look_at(self._run, lease)
            found[lease.name] = {key: int(evidence.get(key) or 0) for key in _HITS}
        return found

    def _guard(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        tripped = self._guards.look(self._run.clock(), answers)
        if tripped is None or self._run.stop.is_set():
            return
        name, reason = tripped
        self._run.events.write("guard", objective=name, reason=reason)
        self._run.halted_by = name
        logger.error(f"chaos_mm {self._run.id}: the guard {name} stops this run: {reason}")
        self._run.request_stop("halted", f"the guard {reason}")
