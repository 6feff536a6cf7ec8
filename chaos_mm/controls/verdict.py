"""The control every experiment of ours names: ``chaos_mm.controls.verdict``.

It makes the run (whose id owns the leases), watches over it from a thread, refuses what must not begin, marks the
phases, and leaves nothing behind: leases are released when the experiment ends, when it crashes, and at once on a
signal. Without it ``inject_*`` does nothing. It does not judge: what a run measured stands in its summary
(``chaos_mm.controls.summary``).

Chaos Toolkit swallows what ``configure_control`` raises and goes on, so a refusal is stored there and raised before
the experiment. Hooks may be called more than once for one event; each is idempotent. Every hook is handed the
control's own arguments, known or not, hence ``**arguments``.
"""

import logging
from typing import Any

from chaoslib import substitute
from chaoslib.exceptions import InterruptExecution, InvalidActivity
from chaoslib.types import Activity, Configuration, Control, Experiment, Journal, Secrets

from chaos_mm.controls.armed import Armed
from chaos_mm.controls.names import LOAD_RATE, text_of
from chaos_mm.controls.strict import strict
from chaos_mm.core.params import ParamSpec

__all__ = [
    "after_activity_control",
    "after_experiment_control",
    "before_activity_control",
    "before_experiment_control",
    "before_rollback_control",
    "cleanup_control",
    "configure_control",
    "validate_control",
]

logger = logging.getLogger("chaostoolkit")
_ARGUMENTS = frozenset({"load_rate"})
_RATE = ParamSpec("load_rate", float, 0.0, "requests a second that the load sends while idle", ge=0, le=1000)

_armed: Armed | None = None
_refusal = ""


def validate_control(control: Control) -> None:
    """Called by ``chaos validate``. Raises InvalidActivity naming an argument that this control does not take."""
    unknown = sorted(set(control["provider"].get("arguments", {})) - _ARGUMENTS)
    if unknown:
        raise InvalidActivity(f"chaos_mm.controls.verdict: {_unknown(unknown)}")


def configure_control(
    load_rate: float = 0.0,
    experiment: Experiment = None,
    configuration: Configuration = None,
    secrets: Secrets = None,
    **arguments: Any,
) -> None:
    """Arm. ``load_rate``: requests a second that the load sends for this run when it is idle; 0: leave it alone."""
    global _armed, _refusal
    if _armed is not None and _armed.experiment is experiment:
        return
    cleanup_control()
    try:
        if arguments:
            raise InvalidActivity(_unknown(sorted(arguments)))
        _armed = Armed(experiment, configuration or {}, secrets or {}, _rate(load_rate, configuration, secrets))
        _armed.arm()
    except Exception as error:  # whatever it is must stop the experiment, and raising here would not
        _refusal = f"{type(error).__name__}: {error}"


def before_experiment_control(context: Experiment, **arguments: Any) -> None:
    """Raise InterruptExecution with every reason not to begin; else start traffic if asked to, and the baseline."""
    if _refusal or _armed is None:
        text = f"chaos_mm.controls.verdict could not arm, so nothing may run: {_refusal or 'it was not configured'}"
        logger.error(text)
        raise InterruptExecution(text)
    _armed.begin()


def before_activity_control(context: Activity, **arguments: Any) -> None:
    """Stop a run that a signal asked to stop; take a last look at the baseline before an injection."""
    if _armed is not None:
        _armed.before_activity(context)


def after_activity_control(context: Activity, state: Journal = None, **arguments: Any) -> None:
    """Before the tolerance is judged: strict JSON, phases, and a stop when an injection did not happen."""
    if _armed is not None and state:
        _armed.after_activity(context, state)


def before_rollback_control(context: Experiment, **arguments: Any) -> None:
    """From here on a signal no longer stops the engine: every rollback is played."""
    if _armed is not None:
        _armed.unwind()


def after_experiment_control(context: Experiment, state: Journal = None, **arguments: Any) -> None:
    """Release what is left, write the summary, and see that the journal is strict JSON."""
    journal = state or {}
    if _armed is not None:
        if _armed.stopped and journal.get("status") == "completed":
            journal["status"] = "interrupted"  # a signal while rollbacks run would else be lost, and the exit status 0
        _armed.finish(interrupted=journal.get("status") == "interrupted")
    for key, value in journal.items():
        journal[key] = strict(value)


def cleanup_control() -> None:
    """Stop watching. Runs after a crash of the engine too, so it releases what ``after_experiment`` could not."""
    global _armed, _refusal
    armed, _armed, _refusal = _armed, None, ""
    if armed is not None:
        armed.close()


def _rate(load_rate: Any, configuration: Configuration, secrets: Secrets) -> float:
    given = substitute({"load_rate": load_rate}, configuration, secrets)["load_rate"]
    rate: float = _RATE.check(given or text_of(LOAD_RATE, configuration))
    return rate


def _unknown(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names)
    return f"unknown argument {listed}; it takes {', '.join(repr(name) for name in sorted(_ARGUMENTS))}"
