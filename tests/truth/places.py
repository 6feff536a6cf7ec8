"""An activity and a control that note where the signal handlers would believe the engine to be."""

import sys
from typing import Any

from chaoslib.types import Activity, Experiment, Hypothesis

from chaos_mm.controls.signals import place

SEEN: list[tuple[str, str]] = []


def _note(moment: str) -> None:
    SEEN.append((moment, place(sys._getframe(1))))


def look(moment: str) -> bool:
    """An action, a probe."""
    _note(moment)
    return True


def before_experiment_control(context: Experiment, **arguments: Any) -> None:
    """A hook."""
    _note("before experiment")


def before_hypothesis_control(context: Hypothesis, **arguments: Any) -> None:
    """A hook."""
    _note("before hypothesis")


def before_method_control(context: Experiment, **arguments: Any) -> None:
    """A hook."""
    _note("before method")


def before_activity_control(context: Activity, **arguments: Any) -> None:
    """A hook."""
    _note(f"before {context['name']}")


def before_rollback_control(context: Experiment, **arguments: Any) -> None:
    """A hook."""
    _note("before rollbacks")


def after_experiment_control(context: Experiment, **arguments: Any) -> None:
    """A hook."""
    _note("after experiment")
