"""One injection: choose the point, ask it for a lease, keep the lease alive. The harm is the point's."""

import logging
from collections.abc import Mapping
from typing import Any

from chaoslib.exceptions import ActivityFailed

from chaos_mm.controls.declared import Answer, bind_injection
from chaos_mm.controls.guard import renew_lease
from chaos_mm.controls.names import ANSWER_SECONDS, POINT_NAMES, control_urls, open_client, token_of
from chaos_mm.controls.run import HeldLease, Run, require
from chaos_mm.controls.strict import strict
from chaos_mm.controls.witness import witness
from chaos_mm.core.errors import BadRequest, ChaosMMError, PointUnreachable
from chaos_mm.core.fault import Fault

__all__ = ["choose_point", "inject"]

logger = logging.getLogger("chaostoolkit")
_HEALTH_SECONDS = 0.3
_LEAST_SECONDS = 0.3


def inject(fault: Fault, arguments: Mapping[str, Any]) -> Answer:
    """Ask a point for a lease of the fault, owned by the run of this process.

    Raises SystemExit(20) without a watched run, ActivityFailed naming what is wrong when the point refuses.
    """
    what = f"inject_{fault.name}"
    run = require(what)
    began = run.clock()
    given = {k: v for k, v in arguments.items() if k not in ("configuration", "secrets")}
    configuration = arguments.get("configuration") or run.configuration
    try:
        params, frame = bind_injection(fault, given)
        known = run.chosen.get((fault.name, frame["point"]))
        point, urls = known or choose_point(fault, frame["point"], configuration)
        held = HeldLease(
            frame["lease"] or fault.name, fault.name, fault.target, point, urls, frame["keepalive_seconds"]
        )
        _refuse_second(run, held)
        left = max(_LEAST_SECONDS, ANSWER_SECONDS - (run.clock() - began))
        leases = _ask(
            run, held, _body(run, fault, params, frame), token_of(arguments.get("secrets") or run.secrets), left
        )
    except ChaosMMError as error:
        run.note(_word(error), f"{what}: {error}")
        raise ActivityFailed(f"{what}: {error}") from None
    held.learn(dict(zip(held.urls, leases, strict=True)))
    _tell(run, held)
    renew_lease(run, held)
    if held.inside and held.fatal:
        witness(run, held)
    return _answer(held)


def choose_point(
    fault: Fault, point: str, configuration: Mapping[str, Any] | None, seconds: float = _HEALTH_SECONDS
) -> tuple[str, tuple[str, ...]]:
    """(point, its control URLs): the named one, else the first of the fault's points that answers within ``seconds``.

    Raises PointUnreachable naming every address that was tried.
    """
    names = [point] if point else [p.value for p in fault.points if control_urls(p.value, configuration)]
    if len(names) == 1 and control_urls(names[0], configuration):
        return names[0], control_urls(names[0], configuration)
    tried = []
    for name in names:
        urls = control_urls(name, configuration)
        silent = [url for url in urls if not _answers(url, seconds)]
        if urls and not silent:
            return name, urls
        tried.append(f"{name} at {', '.join(silent)}" if urls else f"{name} ({POINT_NAMES[name].key} is not set)")
    raise PointUnreachable(f"no injection point answers: {'; '.join(tried) or 'none is configured'}")


def _answers(url: str, seconds: float) -> bool:
    try:
        open_client(url, None, seconds).health()
    except ChaosMMError:
        return False
    return True


def _refuse_second(run: Run, held: HeldLease) -> None:
    known = run.leases.get(held.name)
    if known is not None and not known.released.is_set() and known.urls != held.urls:
        raise ActivityFailed(f"lease {held.name!r} of this run lives at another point; name this one otherwise")


def _body(run: Run, fault: Fault, params: Mapping[str, Any], frame: Mapping[str, Any]) -> dict[str, Any]:
    radius = {"rate": frame["rate"], "selector": frame["selector"], "limit": frame["limit"]}
    body = {key: frame[key] for key in ("ttl_seconds", "keepalive_seconds", "seed", "mode")}
    reason = "".join(c if c.isprintable() else " " for c in frame["reason"] or run.title)
    return {
        **body,
        "owner": run.id,
        "reason": reason[:256],
        "fault": fault.name,
        "params": params,
        "blast_radius": radius,
    }


def _ask(run: Run, held: HeldLease, body: dict[str, Any], token: str | None, seconds: float) -> list[dict[str, Any]]:
    from chaos_mm.control.client import Points

    known = run.leases.get(held.name)
    run.hold(held)
    try:
        return Points(held.urls, token, seconds).put_lease(held.name, body)
    except ChaosMMError as error:
        if known is not None and not known.released.is_set():
            run.hold(known)  # the first of that name lives on and is still answered for
        elif not isinstance(error, PointUnreachable):
            run.forget(held)  # refused in so many words: nothing to undo
        raise


def _word(error: ChaosMMError) -> str:
    """A value that the point does not take, such as a time to live above its cap, is the file's fault."""
    return "error" if isinstance(error, BadRequest) else "not_applied"


def _tell(run: Run, held: HeldLease) -> None:
    if held.fatal:
        logger.warning(f"chaos_mm: {held.fault} at the {held.point}: {held.fatal}")
    shown = {key: held.evidence.get(key) for key in ("params", "blast_radius", "ttl_seconds", "seed", "mode")}
    run.events.write("inject", lease=held.name, fault=held.fault, point=held.point, **shown)


def _answer(held: HeldLease) -> Answer:
    shown = ("owner", "params", "blast_radius", "mode", "expires_in_seconds", "keepalive_seconds", "instance")
    answer: Answer = strict({key: held.evidence.get(key) for key in shown})
    return {"lease": held.name, "fault": held.fault, "point": held.point, **answer}
