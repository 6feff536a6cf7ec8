"""What the points say of leases: hits, residue, readiness; as probes' answers."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from chaos_mm.controls.facts import Residue
from chaos_mm.controls.measuring import no_data
from chaos_mm.controls.names import ANSWER_SECONDS, POINT_NAMES, control_urls, given, open_client
from chaos_mm.controls.refusals import check_ready
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.core.errors import ChaosMMError, PointUnreachable, UnknownLease

__all__ = ["await_undo", "lease_at_points", "look_at", "look_everywhere", "ready", "residue"]

_UNDO_STEP_SECONDS = 0.1


def lease_at_points(run: Run | None, name: str) -> dict[str, Any]:
    """``value``: requests changed, ``samples``: requests the selector met, ``lease``: all of it."""
    held = run.leases.get(name) if run is not None else None
    if run is None or held is None:
        return {**no_data(f"this run holds no lease {name!r}", "requests"), "lease": {}}
    try:
        timeout = ANSWER_SECONDS / len(held.urls)
        found = {url: open_client(url, run.secrets, timeout).lease(name, run.id) for url in held.urls}
    except UnknownLease:
        reason = f"the {held.point} knows no lease {name!r} of this run: it was replaced"
        return {**no_data(reason, "requests"), "lease": held.evidence}
    except ChaosMMError as error:
        return {**no_data(str(error), "requests"), "lease": held.evidence}
    held.learn(found)
    answer = {**no_data("", "requests"), "measured": True, "value": float(held.evidence["applied"])}
    answer.update(samples=held.evidence["matched"], errored=held.evidence["errored"], lease=held.evidence)
    return answer


def look_at(run: Run, lease: HeldLease) -> dict[str, Any]:
    """What the points say of a lease now, and of each that does not say, what was known of it last. It is kept."""
    timeout = ANSWER_SECONDS / max(1, len(lease.urls))
    found = {}
    for url in lease.urls:
        try:
            found[url] = open_client(url, run.secrets, timeout).lease(lease.name, run.id)
        except ChaosMMError:
            continue
    return lease.learn(found)


def look_everywhere(owner: str, configuration: Mapping[str, Any] | None, secrets: Any) -> dict[str, Any]:
    """``value``: leases at every configured address that live, or whose undo is under way; "no data" when an address
    set by hand does not answer.
    """
    living: list[str] = []
    silent: list[str] = []
    asked = 0
    for point, url in _addresses(configuration):
        try:
            leases = open_client(url, secrets, ANSWER_SECONDS / 2).leases(owner)
        except PointUnreachable as error:
            silent += [str(error)] if given(POINT_NAMES[point], configuration) else []
            continue
        except ChaosMMError as error:
            silent.append(f"{url}: {error}")
            continue
        asked += 1
        living += [_left(one, url) for one in leases if one["state"] != "ended"]
    answer = {**no_data("; ".join([*silent, *living]), "leases"), "value": float(len(living)), "samples": asked}
    return {**answer, "measured": not silent and asked > 0}


def _left(lease: Mapping[str, Any], url: str) -> str:
    undoing = ", whose undo is under way" if lease["state"] == "undoing" else ""
    return f"{lease['name']} of {lease['owner']} at {url}{undoing}"


def await_undo(run: Run, seconds: float) -> None:
    """Wait until no lease of the run is being undone, at most so long; what is known of each is made fresh.

    What a process inside the engine owed is not waited for once another one is in its place: see ``HeldLease.gone``.
    """
    until = run.clock() + seconds
    while undoing := [lease for lease in run.leases.values() if _owed(lease.evidence) and not _is_gone(run, lease)]:
        for lease in undoing:
            look_at(run, lease)
        pending = any((lease.evidence.get("undo") or {}).get("pending") for lease in undoing)
        if not pending or run.clock() >= until:
            return
        time.sleep(_UNDO_STEP_SECONDS)


def _owed(told: Mapping[str, Any]) -> bool:
    """Whether an undo is under way, or not proven."""
    undo = told.get("undo") or {}
    return bool(undo) and not undo.get("proven")


def _is_gone(run: Run, lease: HeldLease) -> bool:
    """Whether every process that owed the lease's undo is another one by now: its point answers as another instance."""
    owing = {url: told for url, told in lease.told.items() if _owed(told)}
    lease.gone = lease.inside and bool(owing) and all(_is_another(url, told) for url, told in owing.items())
    return lease.gone


def _is_another(url: str, told: Mapping[str, Any]) -> bool:
    try:
        instance = open_client(url, None).health().get("instance")
    except ChaosMMError:
        return False  # nobody there vouches for it
    return bool(instance) and bool(told.get("instance")) and instance != told["instance"]


def residue(run: Run) -> tuple[Residue, dict[str, Any]]:
    """What this run left at any point, and the answer that says so.

    A lease whose release nobody heard is gone when each of its points answers and holds none of that name; where one
    does not answer, nobody can say.
    """
    answer = look_everywhere(run.id, run.configuration, run.secrets)
    unproven = []
    held = run.held()
    told = {url: _living(run, url) for url in dict.fromkeys(url for lease in held for url in lease.urls)}
    for lease in held:
        silent = [url for url in lease.urls if told[url] is None]
        if silent:
            left = f"without keepalives it ends within {lease.keepalive_seconds:g} s"
            unproven.append(f"{lease.fault} at the {lease.point} {', '.join(silent)}, which does not answer; {left}")
    # A point that was slow a moment ago was not counted above.
    live = max(int(answer["value"]), sum(any(one.name in (told[url] or ()) for url in one.urls) for one in held))
    return Residue(live, tuple(unproven), str(answer["reason"])), answer


def _living(run: Run, url: str) -> set[str] | None:
    """Names of this run's leases that live or are being undone there; None where it does not say."""
    try:
        found = open_client(url, run.secrets, ANSWER_SECONDS).leases(run.id)
    except ChaosMMError:
        return None
    return {str(one.get("name")) for one in found if one.get("state") != "ended"}


def _addresses(configuration: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [(point, url) for point in POINT_NAMES for url in control_urls(point, configuration)]


def ready(points: Sequence[str], configuration: Mapping[str, Any] | None) -> dict[str, Any]:
    """``value``: share of the points whose every address is ready."""
    troubles, good = [], 0
    for point in points:
        try:
            for url in _urls(point, configuration):
                check_ready(url)
            good += 1
        except ChaosMMError as error:
            troubles.append(f"{point}: {error}")
    share = good / len(points) if points else 0.0
    answer = {**no_data("; ".join(troubles), "ratio"), "value": share, "samples": len(points)}
    return {**answer, "measured": bool(points)}


def _urls(point: str, configuration: Mapping[str, Any] | None) -> tuple[str, ...]:
    if point not in POINT_NAMES:
        raise PointUnreachable(f"no such point; there are {', '.join(POINT_NAMES)}")
    urls = control_urls(point, configuration)
    if not urls:
        raise PointUnreachable(f"{POINT_NAMES[point].key} is not set")
    return urls
