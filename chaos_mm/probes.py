"""Probes: what the service's users see (SLIs), and whether the fault truly hit (evidence).

Every answer is ``{"measured", "value", "unit", "samples", "window_seconds", "reason"}`` and whatever else helps the
reader; without data ``measured`` is false and ``value`` 0.0. "No data" is an answer, never an exception, and never NaN.
"""

import functools
from collections.abc import Mapping
from typing import Any

from chaoslib.types import Configuration, Secrets

from chaos_mm.controls import run as live
from chaos_mm.controls.declared import Answer, activity
from chaos_mm.controls.engine_probes import (
    agent_loaded,
    alignment_cosine,
    attention_collapse,
    attention_entropy,
    device_memory,
    embedding_shift_sigma,
    forward_progress,
    generation_alive,
    health_lie_seconds,
    host_memory,
    kv_cache_hit_ratio,
    kv_cache_usage,
    nonfinite_count,
)
from chaos_mm.controls.evidence import lease_at_points, look_everywhere, ready
from chaos_mm.controls.inside import hits_at
from chaos_mm.controls.measuring import answer, no_data, question
from chaos_mm.controls.names import TARGET_MODEL, TARGET_URL, phase_length, text_of
from chaos_mm.controls.outcome import ACTION_SECONDS
from chaos_mm.core.fault import Param

__all__ = [
    "agent_loaded",
    "alignment_cosine",
    "attention_collapse",
    "attention_entropy",
    "device_memory",
    "embedding_shift_sigma",
    "fault_active",
    "fault_hits",
    "forward_progress",
    "generation_alive",
    "health_lie_seconds",
    "host_memory",
    "kv_cache_hit_ratio",
    "kv_cache_usage",
    "lease_evidence",
    "no_residue",
    "nonfinite_count",
    "points_ready",
    "recovery_seconds",
    "sli",
    "target_alive",
]

_DAY_SECONDS = 86400.0
_PHASE_SECONDS = Param("wait until the phase has lasted so long", ge=0, le=_DAY_SECONDS, unit="s")
_ROUND_SECONDS = 5.0  # for probes that ask every point, one after another
_WHOLE_PHASE = Param("wait until the phase has lasted as long as the configuration says: baseline_seconds and so on")
_probe = functools.partial(activity, unable=no_data)


def _answer_after_wait(arguments: Mapping[str, Any]) -> float:
    waits = _phase_seconds(arguments["phase_seconds"], arguments["whole_phase"], arguments.get("configuration"))
    return waits + ACTION_SECONDS


def _phase_seconds(seconds: float, whole_phase: bool, configuration: Any) -> float:
    """How long the phase that this run is in is to last before the probe asks; 0: it asks at once."""
    run = live.current()
    if run is None:
        return 0.0
    return seconds or (phase_length(run.phase, configuration) if whole_phase else 0.0)


@_probe(
    _answer_after_wait,
    whole_phase=_WHOLE_PHASE,
    phase_seconds=_PHASE_SECONDS,
    window_seconds=Param("length of the window; 0: the objective's, else the phase", ge=0, le=_DAY_SECONDS, unit="s"),
)
def sli(
    objective: str = "",
    name: str = "",
    whole_phase: bool = False,
    phase_seconds: float = 0.0,
    window_seconds: float = 0.0,
    phase: str = "",
    modality: str = "",
    audience: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """An SLI over the last window of a phase, as the load measured it on its own clock.

    Name an ``objective`` (its SLI, filters and window are used) or an SLI by ``name``. ``phase`` is baseline, fault or
    recovery; empty: the one this run is in. With ``whole_phase`` the probe first waits until the phase this run is in
    has lasted its configured length (``baseline_seconds``, ``fault_seconds``, ``recovery_seconds``), so that the gate
    measures a whole baseline and the check after the method a whole recovery; ``phase_seconds`` says the length itself.
    """
    asked = question(objective, name, configuration, modality=modality, audience=audience)
    if window_seconds:
        asked["window_seconds"] = window_seconds
    return _ask_load(asked, phase, phase_seconds, whole_phase, configuration, secrets)


@_probe(
    _answer_after_wait,
    objectives=Param("comma-separated names; empty: all of them"),
    whole_phase=_WHOLE_PHASE,
    phase_seconds=_PHASE_SECONDS,
)
def recovery_seconds(
    objectives: str = "",
    whole_phase: bool = False,
    phase_seconds: float = 0.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """Seconds from the release until the objectives were met again and stayed met; "no data" while they are not."""
    asked = {"sli": "recovery_seconds", "objectives": objectives}
    return _ask_load(asked, "recovery", phase_seconds, whole_phase, configuration, secrets)


def _ask_load(
    asked: dict[str, Any], phase: str, seconds: float, whole_phase: bool, configuration: Any, secrets: Any
) -> dict[str, Any]:
    run = live.current()
    if run is not None:
        secrets = secrets or run.secrets
        length = _phase_seconds(seconds, whole_phase, configuration)
        if length and run.stop.wait(run.phase_left(length)):
            return no_data("the run was stopped before the phase was over")
    owner, phase = (run.id, phase or run.phase) if run is not None else ("", phase)
    return {**answer(asked, owner, phase, configuration, secrets), "sli": asked["sli"], "phase": phase}


@_probe(
    lease=Param("name of the lease"),
    site=Param("a place inside the engine, as the lease's 'sites' name them; empty: all"),
)
def fault_hits(lease: str, site: str = "", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """How many requests the fault truly changed (``value``) of those its selector met (``samples``).

    With a ``site`` (a layer, a head, a module): how often it struck there; ``sites`` tells all of them.
    """
    return hits_at(lease_at_points(live.current(), lease), site)


@_probe(lease=Param("name of the lease"))
def lease_evidence(lease: str, configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """As ``fault_hits``, with all that the point knows of the lease: what it achieved, how and when it ended."""
    return lease_at_points(live.current(), lease)


@_probe(lease=Param("name of the lease"))
def fault_active(lease: str, configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """1 while the lease lives at every one of its points, else 0."""
    found = lease_at_points(live.current(), lease)
    if not found["measured"]:
        return found
    lives = found["lease"].get("state") == "live"
    return {**no_data(found["reason"], "leases"), "measured": True, "value": float(lives), "samples": 1}


@_probe(lambda _: _ROUND_SECONDS)
def no_residue(own: bool = False, configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """How many leases live at any point that answers: 0 is a clean service. ``own``: only leases of this run.

    A point whose address was set by hand and that does not answer makes this "no data": nobody can vouch for it.
    """
    run = live.current()
    if run is None:
        return look_everywhere("", configuration, secrets)
    return look_everywhere(run.id if own else "", configuration, secrets or run.secrets)


@_probe(lambda _: _ROUND_SECONDS, points=Param("comma-separated points, such as 'proxy,load'"))
def points_ready(points: str = "proxy,load", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Share of the named points that answer, run this version and are not stopped by hand; ``reason``: the rest."""
    return ready([word.strip() for word in points.split(",") if word.strip()], configuration)


@_probe(
    lambda arguments: float(arguments["timeout_seconds"]),
    timeout_seconds=Param("for one answer", ge=0.1, le=60, unit="s"),
)
def target_alive(
    prompt: str = "repeat the code 4 0 7 2",
    timeout_seconds: float = 5.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """1 when the service under test truly generates, asked directly and not through the proxy; else 0 and why."""
    from chaos_mm.control.timed import without_credentials
    from chaos_mm.controls.target import complete

    url, model = text_of(TARGET_URL, configuration), text_of(TARGET_MODEL, configuration)
    at = without_credentials(url)
    alive: dict[str, Any] = {**no_data("", "ratio"), "measured": True, "samples": 1, "url": at}
    try:
        text = complete(url, model, prompt, timeout_seconds, secrets if isinstance(secrets, Mapping) else None)
    except OSError as error:
        return {**alive, "reason": str(error) or type(error).__name__}
    return {**alive, "value": float(bool(text)), "reason": "" if text else f"{at} generated nothing"}
