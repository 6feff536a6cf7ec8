"""The experiments of the truth table: one healthy file, and the parts to change it with."""

from collections.abc import Mapping, Sequence
from typing import Any

Activity = dict[str, Any]
PHASE_SECONDS = 1.3
HYPOTHESIS = "steady-state-hypothesis"


def activity(func: str, *, module: str = "chaos_mm.actions", type: str = "action", **arguments: Any) -> Activity:
    """One Python activity."""
    provider = {"type": "python", "module": module, "func": func, "arguments": arguments}
    return {"type": type, "name": func.replace("_", "-"), "provider": provider}


def foreign(func: str, *, type: str = "action", **arguments: Any) -> Activity:
    """One activity of ``tests.truth.foreign``."""
    return activity(func, module="tests.truth.foreign", type=type, **arguments)


def inject(**arguments: Any) -> Activity:
    """Noise on the pictures of canaries, with the shortest keepalive there is."""
    given = {"sigma": 0.1, "ttl_seconds": 60, "keepalive_seconds": 5, **arguments}
    return activity("inject_image_noise", **given)


def hold(seconds: float | str = "${fault_seconds}") -> Activity:
    """Wait in an action of ours."""
    return activity("hold", seconds=seconds)


def background(one: Activity) -> Activity:
    """The same, not waited for."""
    return {**one, "background": True}


def paused(one: Activity, **pauses: float) -> Activity:
    """The same with pauses of the toolkit, ``before`` and ``after``."""
    return {**one, "pauses": pauses}


RELEASE = activity("release", lease="image_noise")


def objective(name: str, whole_phase: bool = False) -> Activity:
    """A probe of the hypothesis that asks for an objective and is judged by it."""
    tolerance = activity("within_objective", module="chaos_mm.tolerances", type="probe", objective=name)
    waits = {"whole_phase": True} if whole_phase else {}
    probe = activity("sli", module="chaos_mm.probes", type="probe", objective=name, **waits)
    return {**probe, "name": name, "tolerance": tolerance}


RANGE = {"type": "range", "range": [0, 1]}
LIST = [0, 1]


def judged(probe: Activity, tolerance: Any = RANGE) -> Activity:
    """The probe with a tolerance."""
    return {**probe, "tolerance": tolerance}


def hypothesis(*probes: Activity, whole_phase: bool = True) -> dict[str, Any]:
    """The three objectives, and further probes."""
    ours = [objective("answers", whole_phase), objective("served"), objective("bystanders")]
    return {HYPOTHESIS: {"title": "answers are right", "probes": [*ours, *probes]}}


def control(module: str = "chaos_mm.controls.verdict", **arguments: Any) -> dict[str, Any]:
    """A control of the file."""
    provider: dict[str, Any] = {"type": "python", "module": module}
    if arguments:
        provider["arguments"] = arguments
    return {"name": module.rpartition(".")[2], "provider": provider}


ALWAYS = {"hypothesis": {"strategy": "default"}, "rollbacks": {"strategy": "always"}}


def experiment(
    *method: Activity,
    rollbacks: Sequence[Activity] = (RELEASE,),
    controls: Sequence[Mapping[str, Any]] = (control(),),
    configuration: Mapping[str, Any] = {},
    runtime: Mapping[str, Any] = ALWAYS,
    **more: Any,
) -> dict[str, Any]:
    """An experiment; without a method the healthy one: inject, hold, release."""
    phases = {f"{phase}_seconds": PHASE_SECONDS for phase in ("baseline", "fault", "recovery")}
    return {
        "title": "a row of the truth table",
        "description": "a row of the truth table",
        "configuration": {**phases, **configuration},
        "controls": list(controls),
        "runtime": dict(runtime),
        **hypothesis(),
        "method": list(method or (inject(), hold(), RELEASE)),
        "rollbacks": list(rollbacks),
        **more,
    }
