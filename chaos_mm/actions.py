"""Actions: ``inject_<fault>`` for every fault of the catalogue, and what goes with them.

The inject actions are not written here: each is derived from its fault's declaration, with a real signature that
``chaos discover`` shows and ``chaos validate`` checks. They inject only under ``chaos_mm.controls.verdict``. Every
action but ``hold`` answers within a second, with strict JSON.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from chaos_mm import faults
from chaos_mm.controls import run as live
from chaos_mm.controls.declared import Answer, activity, inject_signature
from chaos_mm.controls.names import ANSWER_SECONDS
from chaos_mm.controls.outcome import ACTION_SECONDS, fail, outcome
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.stopping import StopFlag
from chaos_mm.core.fault import Fault, Param

__all__ = ["hold", "release", "release_all", "start_load", "stop_load"]

_DAY_SECONDS = 86400.0


@activity(lease=Param("name of the lease"))
def release(lease: str, configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Release a lease of this run. Releasing what is gone, or was never injected, succeeds: nothing is left to undo.

    A lease of another run is never touched.
    """
    run = live.current()
    held = run.leases.get(lease) if run is not None else None
    if run is None or held is None:
        return {"lease": lease, "released": False, "reason": "this run holds no lease of that name: nothing to undo"}
    _release(run, [held])
    return _released(held)


@activity()
def release_all(configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Release every lease of this run."""
    run = live.current()
    held = run.held() if run is not None else []
    if run is not None:
        _release(run, held)
    return {"released": len(held), "leases": [_released(one) for one in held]}


def _release(run: Run, leases: list[HeldLease]) -> None:
    addresses, silent = {url for one in leases for url in one.urls}, set[str]()
    troubles = [text for one in leases for text in run.release(one, ANSWER_SECONDS / len(addresses), silent)]
    if troubles:
        left = max(one.keepalive_seconds for one in leases)
        raise ActivityFailed(f"not released: {'; '.join(troubles)}; without keepalives it ends within {left:g} s")


def _released(held: HeldLease) -> Answer:
    shown = ("ended_by", "matched", "applied", "errored", "achieved")
    return {"lease": held.name, "released": True, **{key: held.evidence.get(key) for key in shown}}


@activity(
    rate=Param("requests a second", ge=0.01, le=1000, unit="1/s"),
    mix=Param("shares of the kinds of requests, as the load takes them; empty: its own"),
    ttl_seconds=Param("hard end", ge=1, le=_DAY_SECONDS, unit="s"),
)
def start_load(
    rate: float = 4.0,
    mix: str = "",
    ttl_seconds: float = 3600.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """Let the load send canaries and bystanders for this run until ``stop_load``, the end of the run, or the TTL."""
    from chaos_mm.controls.traffic import start

    return start(live.require("start_load"), rate, mix, ttl_seconds)


@activity()
def stop_load(configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Stop the traffic of this run; other traffic flows on."""
    from chaos_mm.controls.traffic import stop

    run = live.current()
    if run is None:
        return {"stopped": False, "reason": "no run: nothing to stop"}
    return stop(run)


def _hold_seconds(arguments: Mapping[str, Any]) -> float:
    within = float(arguments["within_seconds"]) if arguments["lease"] else 0.0
    return float(arguments["seconds"]) + within + ACTION_SECONDS


@activity(
    _hold_seconds,
    seconds=Param("how long", ge=0, le=_DAY_SECONDS, unit="s"),
    lease=Param("begin to count when this lease has hit; empty: at once"),
    within_seconds=Param("with a lease: wait at most so long for its first hit", ge=0, le=_DAY_SECONDS, unit="s"),
)
def hold(
    seconds: float = 10.0,
    lease: str = "",
    within_seconds: float = 120.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """Wait while the fault is at work; ends early when the run is stopped. Use it in place of ``pauses``.

    A fault that ramps up, or takes memory from a slow machine, is at work later than its injection: with its ``lease``
    the seconds are counted from its first hit. Where it never hits the run goes on, and is then ``not_exercised``.
    """
    from chaos_mm.controls.holding import await_hit

    run, began = live.current(), time.monotonic()
    stop = run.stop if run is not None else StopFlag()
    hit = await_hit(run, lease, within_seconds) if run is not None and lease else None
    waited = time.monotonic() - began
    stopped = stop.wait(seconds if hit is not False else 0.0)
    told = {"waited_seconds": round(waited, 3), "hit": hit} if lease else {}
    return {"held_seconds": round(time.monotonic() - began - waited, 3), "stopped": stopped, **told}


def _inject_action(fault: Fault) -> Callable[..., Answer]:
    def action(**arguments: Any) -> Answer:
        from chaos_mm.controls.injection import inject

        return outcome(action.__name__, lambda: inject(fault, arguments), fail)

    action.__dict__["__signature__"] = inject_signature(fault)
    action.__name__ = action.__qualname__ = f"inject_{fault.name}"
    action.__module__, action.__doc__ = __name__, _inject_doc(fault)
    return action


def _inject_doc(fault: Fault) -> str:
    lines = [f"{spec.name}: {spec.doc} ({spec.allowed}; default {spec.default!r})" for spec in fault.params.values()]
    presets = [f"severity {number}: {dict(values)}" for number, values in sorted(fault.presets.items())]
    return "\n".join([fault.doc, "", f"Injected at: {', '.join(fault.points)}.", "", *lines, *presets]).rstrip()


for _fault in faults.catalogue().values():
    _action = _inject_action(_fault)
    globals()[_action.__name__] = _action
    __all__.append(_action.__name__)
