"""What an experiment file of ours must hold to, whatever the services say: pure checks, one sentence each.

``chaos_mm.controls.refusals`` refuses a file that breaks one before anything runs; ``chaos-mm lint`` says it earlier.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from chaoslib import substitute

__all__ = ["ACTIONS", "activities", "broken_rules", "harmless", "injected_fault", "injections", "lease_of"]

ACTIONS = "chaos_mm.actions"
Activity = Mapping[str, Any]


def activities(experiment: Mapping[str, Any]) -> Iterator[Activity]:
    """Every Python activity of the file: hypothesis probes and their tolerances, method, rollbacks."""
    probes = (experiment.get("steady-state-hypothesis") or {}).get("probes") or []
    tolerances = [p["tolerance"] for p in probes if isinstance(p.get("tolerance"), Mapping)]
    for one in [*probes, *tolerances, *_listed(experiment, "method"), *_listed(experiment, "rollbacks")]:
        provider = one.get("provider", {})
        if provider.get("type") == "python" and isinstance(provider.get("module"), str):
            yield one


def injected_fault(activity: Activity) -> str:
    """The fault that an activity injects, "" for any other activity."""
    provider = activity.get("provider", {})
    func = str(provider.get("func", ""))
    ours = provider.get("module") == ACTIONS and func.startswith("inject_")
    return func.removeprefix("inject_") if ours else ""


def injections(experiment: Mapping[str, Any]) -> list[Activity]:
    """The activities that inject."""
    return [one for one in activities(experiment) if injected_fault(one)]


def lease_of(activity: Activity, configuration: Mapping[str, Any], secrets: Mapping[str, Any]) -> str:
    """The name of the lease that an injection asks for."""
    return str(_arguments(activity, configuration, secrets).get("lease") or injected_fault(activity))


def harmless(experiment: Mapping[str, Any]) -> bool:
    """Whether nothing in the method can hurt anybody: no injection of ours and no action of anybody else's."""
    actions = [one for one in _listed(experiment, "method") if one.get("type") == "action"]
    modules = [str(one.get("provider", {}).get("module", "")) for one in actions]
    return not injections(experiment) and all(module.startswith("chaos_mm.") for module in modules)


def broken_rules(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    """Every rule that the file breaks, strategies apart: those may also come from the command line."""
    released = set(_released_in_rollbacks(experiment, configuration, secrets))
    seen: set[str] = set()
    yield from _misplaced(experiment)
    for one in injections(experiment):
        name, lease = str(one.get("name")), lease_of(one, configuration, secrets)
        if lease in seen:
            yield f"{name}: the lease {lease!r} is injected twice, and its hits are told once; give each a 'lease'"
        seen.add(lease)
        if "ttl_seconds" not in (one["provider"].get("arguments") or {}):
            yield f"{name}: no ttl_seconds is given; an injection says when it ends at the latest"
        if not released & {lease, "*"}:
            yield f"{name}: no rollback releases the lease {lease!r}; add release or release_all to the rollbacks"
        if (one.get("pauses") or {}).get("after"):
            yield f"{name}: pauses.after holds up a signal; wait in a 'hold' action instead"
    for one in _all(experiment):
        if one.get("dry"):
            yield f"{one.get('name')}: a 'dry' key on one activity leaves the others unwatched; use --dry activities"


def _misplaced(experiment: Mapping[str, Any]) -> Iterator[str]:
    """Injections that nobody would judge: outside the method, or once more by ``ref``."""
    method = _listed(experiment, "method")
    for one in injections(experiment):
        if not any(one is other for other in method):
            yield f"{one.get('name')}: an injection stands in the method, not in the hypothesis or the rollbacks"
    names = {one.get("name") for one in injections(experiment)}
    for one in _all(experiment):
        if one.get("ref") in names:
            yield f"the injection {one.get('ref')!r} is repeated by 'ref'; write it out, with a 'lease' of its own"


def _released_in_rollbacks(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    for one in _listed(experiment, "rollbacks"):
        provider = one.get("provider", {})
        if provider.get("module") == ACTIONS and provider.get("func") == "release_all":
            yield "*"
        elif provider.get("module") == ACTIONS and provider.get("func") == "release":
            yield str(_arguments(one, configuration, secrets).get("lease", ""))


def _arguments(activity: Activity, configuration: Mapping[str, Any], secrets: Mapping[str, Any]) -> Mapping[str, Any]:
    given = activity.get("provider", {}).get("arguments") or {}
    found: Mapping[str, Any] = substitute(dict(given), configuration, secrets)
    return found


def _all(experiment: Mapping[str, Any]) -> list[Activity]:
    probes = (experiment.get("steady-state-hypothesis") or {}).get("probes") or []
    return [*probes, *_listed(experiment, "method"), *_listed(experiment, "rollbacks")]


def _listed(experiment: Mapping[str, Any], key: str) -> list[Activity]:
    return [one for one in experiment.get(key) or [] if isinstance(one, Mapping)]
