"""The end of a run: what is left is released, everything is asked once more, judged, and put on disk."""

import http
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chaos_mm.control.timed import without_credentials
from chaos_mm.controls.evidence import await_undo, residue
from chaos_mm.controls.facts import Facts, Hits, Reason, Residue
from chaos_mm.controls.judge import Judged, judge
from chaos_mm.controls.names import ANSWER_SECONDS, TARGET_URL, given, text_of
from chaos_mm.controls.phases import Phases
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.target import answered, started_at

__all__ = ["Ended", "Ending", "TargetWatch", "hits_of"]

logger = logging.getLogger("chaostoolkit")
_SETTLE_SECONDS = 12.0  # the load gives a request up after ten
_SETTLE_STEP_SECONDS = 0.5
_TARGET_SECONDS = 3.0
_UNDO_SECONDS = 12.0  # a lease that is still being undone then is residue


@dataclass
class Ended:
    """Everything that is known at the end, for ``verdict.json``; answers are probes' answers."""

    run: Run
    judged: Judged
    facts: Facts
    expect: str = ""
    phases: Phases | None = None
    slis: dict[str, dict[str, Any]] = field(default_factory=dict)
    recovery: dict[str, Any] | None = None
    residue: dict[str, Any] = field(default_factory=dict)
    target_replaced: bool | None = None


class TargetWatch:
    """Whether the service under test is there, and whether it is still the same process."""

    def __init__(self, run: Run) -> None:
        self._url, self._named = text_of(TARGET_URL, run.configuration), bool(given(TARGET_URL, run.configuration))
        self._answered, self._started = 0, None  # type: int, float | None

    def begin(self) -> None:
        """Look before anything happens."""
        self._answered = answered(self._url, ANSWER_SECONDS)
        self._started = started_at(self._url, ANSWER_SECONDS) if self._there() else None
        if self._named and not self._there():
            told = f"nothing answers at the target {without_credentials(self._url)}, which the report will name"
            logger.warning(f"chaos_mm: {told}; {TARGET_URL.variable} says where it is")

    def gone(self) -> bool:
        """It answered at the start and does not now; a busy one gets a second chance.

        What answered well and refuses now is gone too: something else sits at its address, or it lost its model.
        """
        return self.answers() is False

    def answers(self) -> bool | None:
        """Whether it answers as it did at the start; None when it did not answer then."""
        if not self._there():
            return None
        return any(self._as_before(answered(self._url, _TARGET_SECONDS)) for _ in range(2))

    def _there(self) -> bool:
        return 0 < self._answered < 500

    def _as_before(self, status: int) -> bool:
        busy = status == http.HTTPStatus.TOO_MANY_REQUESTS
        return busy or 0 < status < (400 if self._answered < 400 else 500)

    def replaced(self) -> bool | None:
        """Whether another process serves now than at the beginning; None where that cannot be told."""
        after = started_at(self._url, ANSWER_SECONDS) if self._started is not None else None
        if self._started is None or after is None:
            return None
        if self._started != after:
            logger.warning("chaos_mm: the target was replaced while this run was under way")
        return self._started != after


@dataclass
class Ending:
    """Collects the facts of one run. ``planned``: the leases that its file injects."""

    run: Run
    phases: Phases
    target: TargetWatch
    planned: tuple[str, ...]
    min_achieved: Mapping[str, float]
    dry: str
    judged_by_toolkit: bool
    harmless: bool = False
    expect: str = ""

    def release(self) -> None:
        """Whatever still lives, once more for leases that were slow to come."""
        for trouble in self.run.release_all():
            logger.error(f"chaos_mm: NOT RELEASED, ends by its own keepalive: {trouble}")

    def collect(self, told: list[Reason], stopped: bool) -> Ended:
        """Ask, and judge. ``told``: what the toolkit's journal says. ``stopped``: it did not run to its end."""
        cut = self.run.phase if stopped else ""
        self.phases.enter("end")
        if not stopped:
            _settle(self.run, self.phases)
        self.phases.ask_again()
        await_undo(self.run, _UNDO_SECONDS)
        left, answer = residue(self.run)
        facts = self._facts(told, cut, left)
        slis = {phase: self.phases.measured(phase) for phase in self.phases.lasted}
        ended = Ended(self.run, judge(facts), facts, self.expect, self.phases, slis, residue=answer)
        ended.recovery, ended.target_replaced = self.phases.recovery(), facts.target_replaced
        return ended

    def without_asking(self, told: list[Reason], *, refused: bool) -> Ended:
        """Judge a run that was refused, was a dry one, or broke: nothing was measured, or can be asked any more."""
        noted = (*self.run.notes, *told)
        facts = Facts(noted=noted, refused=refused, begun=bool(self.run.begun), dry=self.dry)
        return Ended(self.run, judge(facts), facts, self.expect)

    def _facts(self, told: list[Reason], cut: str, left: Residue) -> Facts:
        leases = list(self.run.leases.values())
        hits = tuple(hits_of(lease) for lease in leases if "matched" in lease.evidence)
        begun = [phase for phase in self.phases.lasted if phase == "baseline" or hits or not self.planned]
        answers = self.target.answers()
        return Facts(
            noted=(*self.run.notes, *told),
            dry=self.dry,
            planned=self.planned,
            harmless=self.harmless,
            hits=hits,
            min_achieved=self.min_achieved,
            windows=self.phases.worst.windows(begun),
            guarded=self.phases.worst.guarded(begun),
            cut=cut,
            judged_by_toolkit=self.judged_by_toolkit,
            residue=left,
            target_gone=answers is False,
            target_answers=answers,
            target_replaced=self.target.replaced(),
        )


def hits_of(lease: HeldLease) -> Hits:
    """A lease's evidence as the verdict needs it."""
    told = lease.evidence
    achieved = {name: float(tally["mean"]) for name, tally in (told.get("achieved") or {}).items()}
    radius = told.get("blast_radius") or {}
    rate, limit = float(radius.get("rate", 1.0)), int(radius.get("limit") or 0)
    counts = int(told.get("matched") or 0), int(told.get("applied") or 0)
    mode, ended_by = str(told.get("mode") or "inject"), str(told.get("ended_by") or "")
    found = Hits(lease.name, lease.fault, *counts, rate=rate, mode=mode, ended_by=ended_by, achieved=achieved)
    return replace(found, **_undo_of(told), fatal=lease.fatal, limit=limit, gone=lease.gone)


def _undo_of(told: Mapping[str, Any]) -> dict[str, Any]:
    undo = told.get("undo") or {}
    reason = str(undo.get("reason") or "")
    said = (
        "it was still under way when last heard of" if undo.get("pending") else reason or "the point does not say why"
    )
    return {
        "undo": said if undo and not undo.get("proven") else "",
        "failed": reason if undo.get("proven") else "",
        "replaced": bool(undo.get("proven") and (undo.get("figures") or {}).get("replacement_pid")),
    }


def _settle(run: Run, phases: Phases) -> None:
    """Wait until the load has decided the last phase's requests, at most 12 s: an outage at the very end counts."""
    last = next(reversed(phases.lasted), "")
    until = run.clock() + _SETTLE_SECONDS
    while last and not phases.worst.settled(last) and run.clock() < until:
        if run.stop.wait(_SETTLE_STEP_SECONDS):
            return
        phases.worst.ask(last, phases.lasted[last])
