"""Baseline, fault, recovery: marked on the load's clock as they begin, told in one line each as they end."""

import logging
from collections.abc import Mapping
from typing import Any

from chaos_mm.controls.measuring import Load
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.core.errors import ChaosMMError

__all__ = ["Phases", "hits", "shown_slis"]

logger = logging.getLogger("chaostoolkit")
_TOLD = ("canary_exact", "ok_ratio", "bystander_ok")
_MODALITIES = ("image", "audio", "text")


class Phases:
    """The phases of one run. Without a load they are kept all the same; only nothing can be measured in them.

    ``load_needed``: whether that is worth a warning.
    """

    def __init__(self, run: Run, load_needed: bool) -> None:
        self._run, self._load_needed = run, load_needed
        self._baseline: dict[str, dict[str, Any]] = {}  # by modality, "" for all of them

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
            self._tell(before, run.phase_since - since)

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

    def _measure(self, phase: str, modality: str) -> dict[str, Any]:
        try:
            return Load(self._run.configuration, self._run.secrets).slis(self._run.id, phase, modality=modality)
        except ChaosMMError as error:
            self._warn(f"no SLIs of phase {phase!r}: {error}")
            return {}

    def _tell(self, phase: str, seconds: float) -> None:
        parts = [f"chaos_mm {self._run.id}: {phase} {seconds:.1f} s"]
        if phase == "fault":
            parts += [hits(lease) for lease in self._run.leases.values()]
        shown = shown_slis(self.measured(phase))
        logger.info(" · ".join([*parts, *shown] if shown else [*parts, "nothing measured"]))

    def _warn(self, text: str) -> None:
        logger.log(logging.WARNING if self._load_needed else logging.DEBUG, f"chaos_mm: {text}")


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
