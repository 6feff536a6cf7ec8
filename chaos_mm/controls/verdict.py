"""The control every experiment of ours names: ``chaos_mm.controls.verdict``.

It makes the run (whose id owns the leases), watches over it from threads of its own, refuses what must not begin, marks
the phases, samples every objective, stops the run for a guard, leaves nothing behind, and at the end judges: the first
true word of ``chaos_mm.report.words`` goes to the run's folder, the journal and the exit status of ``chaos run``.
Without it ``inject_*`` does nothing.

Chaos Toolkit swallows what ``configure_control`` raises and goes on, so a refusal is stored there and raised before
the experiment; it swallows what the other hooks raise as well, so a hook of ours that breaks stops the run itself.
Hooks may be called more than once for one event; each is idempotent. Every hook is handed the control's own arguments,
known or not, hence ``**arguments``.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

from chaoslib.exceptions import InterruptExecution, InvalidActivity
from chaoslib.run import RunEventHandler
from chaoslib.types import Activity, Configuration, Control, Experiment, Journal, Secrets

from chaos_mm.controls.arguments import Arguments, check
from chaos_mm.controls.armed import Armed
from chaos_mm.controls.facts import Reason
from chaos_mm.core.errors import InvalidParams

__all__ = [
    "after_activity_control",
    "after_experiment_control",
    "before_activity_control",
    "before_experiment_control",
    "before_method_control",
    "before_rollback_control",
    "cleanup_control",
    "configure_control",
    "validate_control",
]

logger = logging.getLogger("chaostoolkit")
# Raised before the rollbacks it would take them away.
_MAY_STOP = ("before_experiment_control", "before_method_control", "before_activity_control")
_armed: Armed | None = None
_refusal = ""


class _Journal(RunEventHandler):  # type: ignore[misc]
    """Hands over the live journal: after a crash nobody else writes one."""

    def running(self, experiment: Any, journal: Any, *others: Any, **more: Any) -> None:
        if _armed is not None:
            _armed.telling.journal = journal


def _watched(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that breaks for a reason of its own must not do so in silence."""

    @functools.wraps(hook)
    def call(*args: Any, **arguments: Any) -> None:
        try:
            hook(*args, **arguments)
        except InterruptExecution:
            raise
        except Exception as error:
            if _armed is None:
                raise
            _armed.broke(f"{hook.__name__} broke: {type(error).__name__}: {error}")
            if hook.__name__ in _MAY_STOP:
                raise InterruptExecution(f"chaos_mm.controls.verdict broke in {hook.__name__}") from error

    return call


def validate_control(control: Control) -> None:
    """Called by ``chaos validate``. Raises InvalidActivity for an argument that is unknown or of a wrong value."""
    try:
        check(control["provider"].get("arguments") or {})
    except InvalidParams as error:
        raise InvalidActivity(f"chaos_mm.controls.verdict: {error}") from None


def configure_control(
    experiment: Experiment = None,
    configuration: Configuration = None,
    secrets: Secrets = None,
    event_registry: Any = None,
    **arguments: Any,
) -> None:
    """Arm, or store why not. ``arguments``: those of ``chaos_mm.controls.arguments``."""
    global _armed, _refusal
    if _armed is not None and _armed.experiment is experiment:
        return
    cleanup_control()
    try:
        given, wrong = _read(arguments, configuration, secrets)
        _armed = Armed(experiment, configuration or {}, secrets or {}, given)
        if event_registry is not None:
            event_registry.register(_Journal())
        _armed.arm(wrong)
    except Exception as error:  # whatever it is must stop the experiment, and raising here would not
        _refusal = f"{type(error).__name__}: {error}"


@_watched
def before_experiment_control(context: Experiment, **arguments: Any) -> None:
    """Raise InterruptExecution with every reason not to begin; else start traffic if asked to, and the baseline."""
    if _refusal or _armed is None:
        text = f"chaos_mm.controls.verdict could not arm, so nothing may run: {_refusal or 'it was not configured'}"
        logger.error(text)
        if _armed is None:
            raise InterruptExecution(text)
        _armed.refuse(Reason("error", text))
    _armed.begin()


@_watched
def before_method_control(context: Experiment, **arguments: Any) -> None:
    """The phase of a file that injects nothing of ours changes here."""
    if _armed is not None:
        _armed.begin_method()


@_watched
def before_activity_control(context: Activity, **arguments: Any) -> None:
    """Stop a run that is to stop; take a last look at the baseline before an injection."""
    if _armed is not None:
        _armed.before_activity(context)


@_watched
def after_activity_control(context: Activity, state: Journal = None, **arguments: Any) -> None:
    """Before the tolerance is judged: strict JSON, phases, and a stop when an injection did not happen."""
    if _armed is not None:
        _armed.after_activity(context, state)


@_watched
def before_rollback_control(context: Experiment, **arguments: Any) -> None:
    """From here on a signal no longer stops the engine: every rollback is played."""
    if _armed is not None:
        _armed.unwind()


@_watched
def after_experiment_control(context: Experiment, state: Journal = None, **arguments: Any) -> None:
    """Release what is left, judge, and write the verdict everywhere, the toolkit's journal included."""
    if _armed is not None:
        _armed.finish(state if state is not None else _armed.telling.journal)


def cleanup_control() -> None:
    """Stop watching. Runs after a crash of the engine too, so it does what ``after_experiment`` could not."""
    global _armed, _refusal
    armed, crash = _armed, sys.exc_info()[1]
    _armed, _refusal = None, ""
    if armed is not None:
        armed.close(crash if isinstance(crash, Exception) else None)


def _read(arguments: dict[str, Any], configuration: Any, secrets: Any) -> tuple[Arguments, str]:
    try:
        return Arguments.read(arguments, configuration, secrets), ""
    except InvalidParams as error:
        return Arguments(), str(error)
