"""Baseline, fault, recovery: marked on the load's clock as they begin, told in one line each as they end."""

import logging
from collections.abc import Mapping
from typing import Any

from chaos_mm.controls.measuring import Load
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.worst import WorstWindows
from chaos_mm.core.errors import ChaosMMError

__all__ = ["Phases", "hits", "shown_slis"]

logger = logging.getLogger("chaostoolkit")
_TOLD = ("canary_exact", "ok_ratio", "bystander_ok")
_TOLD_SECONDS = 1.0
_MODALITIES = ("image", "audio", "text")


class Phases:
    """The phases of one run. Without a load they are kept all the same; only nothing can be measured in them.

    ``load_needed``: whether that is worth a warning. ``lasted``: seconds of each phase that is over.
    """

    def __init__(self, run: Run, load_needed: bool, worst: WorstWindows) -> None:
        self._run, self._load_needed, self.worst = run, load_needed, worst
        self._baseline: dict[str, dict[str, Any]] = {}  # by modality, "" for all of them
        self.lasted: dict[str, float] = {}

    def enter(self, phase: str) -> None:
        """Begin a phase, once, and tell how the one before went."""
        run, before, since = self._run, self._run.phase, self._run.phase_since
        if not run.enter(phase):
            return
        try:
            Load(run.configuration, run.secrets).mark(run.id, phase)
        except ChaosMMError as error:
            self._warn(f"phase {phase!r} is not marked at the load: {error}")
        if before:
            self.lasted[before] = run.phase_since - since
            self.worst.ask(before, self.lasted[before])
            self._tell(before)

    def remember_baseline(self, target: str) -> None:
        """Measure the baseline just before a fault on ``target`` begins: requests that are under way then count to the
        baseline by the time they were due, and the fault may hit them."""
        if self._run.phase == "baseline":
            # Of all modalities as well: which ones this run hurts is known only at its end.
            self._baseline.update({one: self._measure("baseline", one) for one in ("", _modality(target))})

    def measured(self, phase: str) -> dict[str, Any]:
        """Every SLI of a phase by name, for the modality that this run hurts, for all when it hurts several; empty when
        the load cannot be asked."""
        hurt = {_modality(lease.target) for lease in self._run.leases.values()}
        modality = hurt.pop() if len(hurt) == 1 else ""
        known = self._baseline.get(modality) if phase == "baseline" else None
        return known if known is not None else self._measure(phase, modality)

    def ask_again(self) -> None:
        """Ask for the worst windows once more, now that every request has been decided."""
        for phase, seconds in self.lasted.items():
            if not self.worst.ask(phase, seconds):
                return

    def recovery(self) -> dict[str, Any] | None:
        """The load's answer on how long the objectives took to be met again; None without a recovery to measure."""
        names = ",".join(one.name for one in self.worst.named)
        if "recovery" not in self.lasted or not names:
            return None
        try:
            load = Load(self._run.configuration, self._run.secrets)
            return load.sli("recovery_seconds", self._run.id, "recovery", objectives=names)
        except ChaosMMError as error:
            self._warn(f"no recovery_seconds: {error}")
            return None

    def _measure(self, phase: str, modality: str) -> dict[str, Any]:
        try:
            return Load(self._run.configuration, self._run.secrets).slis(self._run.id, phase, modality=modality)
        except ChaosMMError as error:
            self._warn(f"no SLIs of phase {phase!r}: {error}")
            return {}

    def _tell(self, phase: str) -> None:
        parts = [f"chaos_mm {self._run.id}: {phase} {self.lasted[phase]:.1f} s"]
        if phase == "fault":
            parts += [hits(lease) for lease in self._run.leases.values()]
        worst = self.worst.worst_of(phase)
        if worst and worst[1].get("measured") is not True and self.lasted[phase] < _TOLD_SECONDS:
            worst = None  # over as it began: of that nobody expects data
        shown = [_shown(*worst)] if worst else shown_slis(self.measured(phase))
        logger.info(" · ".join([*parts, *shown] if shown else [*parts, "nothing measured"]))

    def _warn(self, text: str) -> None:
        logger.log(logging.WARNING if self._load_needed else logging.DEBUG, f"chaos_mm: {text}")


def _shown(name: str, answer: Mapping[str, Any]) -> str:
    """``worst: picture-answers: canary_exact is 0.55, not at least 0.6 (n=20)``"""
    return f"worst: {answer.get('reason') or name} (n={answer.get('samples', 0)})"


def _modality(target: str) -> str:
    """What the load calls a fault's target; "" where it has no such requests."""
    name = target.removesuffix("_file")
    return name if name in _MODALITIES else ""


def hits(lease: HeldLease) -> str:
    """``image_noise hit 35 of 36 (psnr_db 26.02)``"""
    evidence = lease.evidence
    achieved = ", ".join(f"{name} {tally['mean']:.4g}" for name, tally in evidence.get("achieved", {}).items())
    text = f"{lease.fault} hit {evidence.get('applied', 0)} of {evidence.get('matched', 0)} requests"
    errored = evidence.get("errored", 0)
    return text + (f", {errored} failed" if errored else "") + (f" ({achieved})" if achieved else "")


def shown_slis(slis: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The SLIs that a progress line names, where they were measured."""
    found = [(name, slis.get(name, {})) for name in _TOLD]
    return [f"{name} {one['value']:.3f} (n={one['samples']})" for name, one in found if one.get("measured")]
