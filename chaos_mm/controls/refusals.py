"""What must hold before an experiment of ours begins; each thing that does not is one sentence with its word.

``chaos validate`` cannot judge a value that is a variable, and ``--no-validation`` skips it altogether, so every
activity of ours is judged again here with its variables substituted.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from chaoslib import substitute

from chaos_mm.controls.command_line import CommandLine
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.injection import choose_point
from chaos_mm.controls.names import OBJECTIVES_DIR, control_urls, given, open_client, phase_length
from chaos_mm.controls.objectives import named_objectives
from chaos_mm.controls.rules import Activity, activities, broken_rules, injected_fault, injections
from chaos_mm.controls.run import PHASES
from chaos_mm.controls.values import wrong_values
from chaos_mm.core.errors import ChaosMMError, InvalidParams, NotInjectable, OwnedByAnother, PointUnreachable, Stopped

__all__ = ["check_ready", "needs_load", "refusals", "unready", "wrong_in_file"]

_OURS = "chaos_mm."
_NEED_LOAD = frozenset({"sli", "recovery_seconds", "start_load"})
_HEALTH_SECONDS = 3.0  # nothing has begun yet, so a busy point gets its time
Chosen = dict[tuple[str, str], tuple[str, tuple[str, ...]]]


def refusals(
    experiment: Mapping[str, Any],
    configuration: Mapping[str, Any],
    secrets: Mapping[str, Any],
    load_needed: bool,
    command: CommandLine,
    chosen: Chosen | None = None,
    fatal: dict[str, str] | None = None,
) -> list[Reason]:
    """Every reason not to begin. A point is only asked when the file is right, and of a dry run not at all.

    ``chosen`` is filled with the points that answered, ``fatal`` with why a fault needs a restart afterwards, by fault.
    """
    # Somebody else's experiment under --control-file keeps its own ways: nothing of ours is in it to be undone.
    strategies = command.refusals() if _ours(experiment) else ()
    wrong = [*strategies, *wrong_in_file(experiment, configuration, secrets)]
    if wrong or command.dry:
        return wrong
    known = ({} if chosen is None else chosen), ({} if fatal is None else fatal)
    return unready(experiment, configuration, secrets, load_needed, *known)


def wrong_in_file(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> list[Reason]:
    """What is wrong with the file and its values, whatever runs: each is an ``error``."""
    ours = _ours(experiment)
    wrong = [text for one in ours for text in wrong_values(one, configuration, secrets)]
    wrong += broken_rules(experiment, configuration, secrets)
    wrong += [*_unknown_objectives(experiment, configuration, secrets), *_wrong_lengths(configuration)]
    return [Reason("error", text) for text in wrong]


def unready(
    experiment: Mapping[str, Any],
    configuration: Mapping[str, Any],
    secrets: Mapping[str, Any],
    load_needed: bool,
    chosen: Chosen,
    fatal: dict[str, str],
) -> list[Reason]:
    """Points that are needed and absent, of another version, stopped, another's, or refuse the fault: each is
    ``not_applied``.
    """
    found = [*_unready_points(injections(experiment), configuration, secrets, chosen, fatal)]
    found += _unready_load(configuration) if load_needed else ()
    return [Reason("not_applied", text) for text in found]


def needs_load(experiment: Mapping[str, Any]) -> bool:
    """Whether an activity of ours asks the load."""
    return any(one["provider"].get("func") in _NEED_LOAD for one in _ours(experiment))


def _ours(experiment: Mapping[str, Any]) -> list[Activity]:
    return [one for one in activities(experiment) if one["provider"]["module"].startswith(_OURS)]


def _unknown_objectives(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    from chaos_mm.sli import objectives

    named = named_objectives(experiment, configuration, secrets)
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
    ours: list[Activity],
    configuration: Mapping[str, Any],
    secrets: Mapping[str, Any],
    chosen: Chosen,
    fatal: dict[str, str],
) -> Iterator[str]:
    from chaos_mm import faults

    asked = set()
    for one in ours:
        point = substitute(one["provider"].get("arguments") or {}, configuration, secrets).get("point", "")
        asked.add((injected_fault(one), point))
    for name, point in sorted(asked):
        try:
            chosen[name, point] = choose_point(faults.get(name), point, configuration, _HEALTH_SECONDS)
            for url in chosen[name, point][1]:
                check_ready(url)
                _check_free(url, secrets)
                declared = _declared(url, name, secrets)
                fatal |= {name: str(declared["fatal"])} if declared.get("fatal") else {}
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


def _declared(url: str, name: str, secrets: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the point says of the fault. Raises NotInjectable when it does not have it, or says that it cannot."""
    for one in open_client(url, secrets, _HEALTH_SECONDS).faults():
        if one.get("name") == name:
            if one.get("refusal") and not one.get("pending"):  # else the point knows when the lease is put
                raise NotInjectable(str(one["refusal"]))
            return one
    raise NotInjectable(f"the point at {url} cannot run it")


def _check_free(url: str, secrets: Mapping[str, Any]) -> None:
    """Raise ChaosMMError when the point serves as many owners as it will: their faults would be residue to this run."""
    found = open_client(url, secrets, _HEALTH_SECONDS).get("/leases")
    leases = found.get("leases") if isinstance(found, Mapping) else None
    live = [one for one in leases if one.get("state") == "live"] if isinstance(leases, list) else []
    if live and len({one.get("owner") for one in live}) >= int(found.get("max_owners", 1)):
        one = live[0]
        why = f" ({one['reason']})" if one.get("reason") else ""
        left = float(one.get("expires_in_seconds", 0.0))
        raise OwnedByAnother(
            f"{url} is held by {one.get('owner')}{why}: lease {one.get('name')!r} has {left:.0f} s left at most"
        )


def _unready_load(configuration: Mapping[str, Any]) -> Iterator[str]:
    urls = control_urls("load", configuration)
    try:
        if not urls:
            raise PointUnreachable("load_control_url is not set")
        check_ready(urls[0])
    except ChaosMMError as error:
        yield f"the load is needed for the SLIs: {error}"
