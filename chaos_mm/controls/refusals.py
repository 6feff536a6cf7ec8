"""What must hold before an experiment of ours begins; each thing that does not is one sentence.

``chaos validate`` cannot judge a value that is a variable, and ``--no-validation`` skips it altogether, so every
activity of ours is judged again here with its variables substituted.
"""

import difflib
import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from chaoslib import substitute
from chaoslib.exceptions import InvalidActivity

from chaos_mm.controls.declared import GIVEN_BY_TOOLKIT, holds_variable
from chaos_mm.controls.injection import choose_point
from chaos_mm.controls.names import OBJECTIVES_DIR, control_urls, given, open_client, phase_length
from chaos_mm.controls.run import PHASES
from chaos_mm.core.errors import ChaosMMError, InvalidParams, PointUnreachable, Stopped

__all__ = ["ACTIONS", "activities", "injected_fault", "needs_load", "refusals"]

ACTIONS = "chaos_mm.actions"
_OURS = "chaos_mm."
_NEED_LOAD = frozenset({"sli", "recovery_seconds", "start_load"})
_HEALTH_SECONDS = 0.9


def refusals(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any], load_needed: bool
) -> list[str]:
    """Every reason not to begin; values first, since a point is only asked when the file is right."""
    ours = _ours(experiment)
    wrong = [text for one in ours for text in _wrong_values(one, configuration, secrets)]
    wrong += [*_unknown_objectives(ours, configuration, secrets), *_wrong_lengths(configuration)]
    unready_load = _unready_load(configuration) if load_needed else ()
    return wrong or [*_unready_points(ours, configuration, secrets), *unready_load]


def needs_load(experiment: Mapping[str, Any]) -> bool:
    """Whether an activity of ours asks the load."""
    return any(one["provider"].get("func") in _NEED_LOAD for one in _ours(experiment))


def _ours(experiment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in activities(experiment) if one["provider"]["module"].startswith(_OURS)]


def activities(experiment: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every Python activity of the file: hypothesis probes and their tolerances, method, rollbacks."""
    probes = experiment.get("steady-state-hypothesis", {}).get("probes", [])
    tolerances = [p["tolerance"] for p in probes if isinstance(p.get("tolerance"), Mapping)]
    for one in [*probes, *tolerances, *experiment.get("method", []), *experiment.get("rollbacks", [])]:
        provider = one.get("provider", {})
        if provider.get("type") == "python" and isinstance(provider.get("module"), str):
            yield one


def injected_fault(activity: Mapping[str, Any]) -> str:
    """The fault that an activity injects, "" for any other activity."""
    provider = activity.get("provider", {})
    func = str(provider.get("func", ""))
    ours = provider.get("module") == ACTIONS and func.startswith("inject_")
    return func.removeprefix("inject_") if ours else ""


def _wrong_values(
    one: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    provider = one["provider"]
    arguments = substitute(dict(provider.get("arguments", {})), configuration, secrets)
    for name, value in arguments.items():
        if holds_variable(value):
            yield f"{one.get('name', provider['func'])}: {name}={value!r}: that variable has no value"
    function = getattr(importlib.import_module(provider["module"]), provider["func"], None)
    if function is None:
        yield f"{provider['module']} has no {provider['func']!r}"
        return
    signature = inspect.signature(function)
    spare = {name: None for name in GIVEN_BY_TOOLKIT if name in signature.parameters}
    try:
        signature.bind(**{**arguments, **spare})
    except (InvalidActivity, TypeError) as error:
        yield f"{one.get('name', provider['func'])}: {error}"


def _unknown_objectives(
    ours: list[Mapping[str, Any]], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    named = set()
    for one in ours:
        objective = substitute(dict(one["provider"].get("arguments", {})), configuration, secrets).get("objective")
        if isinstance(objective, str) and objective:
            named.add(objective)
    if not named:
        return
    from chaos_mm.sli import objectives

    try:
        known = objectives.load(given(OBJECTIVES_DIR, configuration))
    except ChaosMMError as error:
        yield str(error)
        return
    for name in sorted(named - set(known)):
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
        yield f"no objective {name!r}; {hint}"


def _wrong_lengths(configuration: Mapping[str, Any]) -> Iterator[str]:
    for phase in PHASES[:-1]:
        try:
            phase_length(phase, configuration)
        except InvalidParams as error:
            yield str(error)


def _unready_points(
    ours: list[Mapping[str, Any]], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    from chaos_mm import faults

    asked = set()
    for one in ours:
        if injected_fault(one):
            point = substitute(one["provider"].get("arguments", {}), configuration, secrets).get("point", "")
            asked.add((injected_fault(one), point))
    for name, point in sorted(asked):
        try:
            for url in choose_point(faults.get(name), point, configuration)[1]:
                check_ready(url)
        except ChaosMMError as error:
            yield f"inject_{name}: {error}"


def check_ready(url: str) -> None:
    """Raise ChaosMMError when the point at ``url`` is absent, of another version, or stopped."""
    from chaos_mm import __version__

    health = open_client(url, None, _HEALTH_SECONDS).health()
    if health.get("version") != __version__:
        raise PointUnreachable(f"{url} runs chaos_mm {health.get('version')}, here is {__version__}: use one version")
    if health.get("stopped"):
        raise Stopped(f"the {health.get('point')} at {url} was stopped by hand; 'chaos-mm stop --clear' lifts it")


def _unready_load(configuration: Mapping[str, Any]) -> Iterator[str]:
    urls = control_urls("load", configuration)
    try:
        if not urls:
            raise PointUnreachable("load_control_url is not set")
        check_ready(urls[0])
    except ChaosMMError as error:
        yield f"the load is needed for the SLIs: {error}"
