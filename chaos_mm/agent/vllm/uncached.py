"""Blocks of requests that a lease may hurt never enter the prefix cache: nobody else can find what derives from damage.

The engine core decides what is cached and the worker what is hurt, in other processes; so whoever a live lease has
chosen is left out from then on until its end. Such a request gets its answer as always; only its blocks are not shared.

A step that was scheduled before a lease came has cached what it fills, so that lease must not hurt anybody in it: every
step carries the generation of the board that the scheduler had seen, and none where nothing was armed (``seen_by``).
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process
from chaos_mm.core.fault import Seam

__all__ = ["install", "leave_out", "may_be_hurt", "seen_by"]

logger = logging.getLogger("chaos_mm.agent")
_SEAMS = (Seam.KV, Seam.KV_LOAD, Seam.ATTENTION, Seam.EMBEDDING)
_MARK = "chaos_mm_may_be_hurt"
_SEEN = "chaos_mm_generation"
_NOTHING = -1
_runtimes: list[Runtime] = []
"""The engine core's, once it is known: asked for every request of every step."""


def install() -> None:
    """Put the doors into vLLM's coordinator of key-value caches and its scheduler, once a process."""
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
    from vllm.v1.core.sched.scheduler import Scheduler

    if not hasattr(KVCacheCoordinator.cache_blocks, "chaos_mm"):
        KVCacheCoordinator.cache_blocks = _door(KVCacheCoordinator.cache_blocks)
        Scheduler.schedule = _stamped(Scheduler.schedule)


def seen_by(output: Any) -> int:
    """Generation of the board before anything of this step (a SchedulerOutput) was scheduled; -1: nothing was armed
    then, or the scheduler has no agent. Only leases that are no newer may hurt somebody in it.
    """
    found: int = getattr(output, _SEEN, _NOTHING)
    return found


def leave_out(request: Any) -> None:
    """Share none of its blocks from now on (vLLM's ``Request``)."""
    request.__dict__[_MARK] = True


def _stamped(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def schedule(*arguments: Any, **options: Any) -> Any:
        seen = _seen()
        output = real(*arguments, **options)
        if seen != _NOTHING:
            setattr(output, _SEEN, seen)  # a plain attribute: it goes to the workers with the rest, pickled or not
        return output

    return schedule


def _seen() -> int:
    """The board's generation while anything is armed. Read before the step: what comes later may be missed by it."""
    try:
        runtime = _runtime()
        return runtime.page.generation if runtime.armed() else _NOTHING
    except Exception:  # an exception here would end the engine
        logger.exception("what is armed could not be told; nobody is hurt in this step")
        return _NOTHING


def _runtime() -> Runtime:
    if not _runtimes:
        _runtimes.append(process.runtime("engine_core"))
    return _runtimes[0]


def _door(real: Callable[..., None]) -> Callable[..., None]:
    @wraps(real)
    def cache_blocks(coordinator: Any, request: Any, num_computed_tokens: int) -> None:
        if not _left_out(request):
            real(coordinator, request, num_computed_tokens)

    cache_blocks.chaos_mm = True  # type: ignore[attr-defined]
    return cache_blocks


def _left_out(request: Any) -> bool:
    if _MARK in request.__dict__:
        return True
    try:
        runtime = _runtime()
        found = runtime.armed() and may_be_hurt(runtime, request)
    except Exception:  # an exception here would end the engine
        logger.exception("whether a request may be hurt could not be told; its blocks are not shared")
        found = True
    if found:
        leave_out(request)
    return found


def may_be_hurt(runtime: Runtime, request: Any) -> bool:
    """Whether a live lease of the worker's seams has chosen the request; counts nothing."""
    who = runtime.identify(request.request_id)
    modalities = {"text", *(feature.modality for feature in request.mm_features or ())}
    for seam in _SEAMS:
        for armed in runtime.leases(seam):
            live = armed.radius.selector.live or who.canary
            terms = all(value in modalities for _, value in armed.radius.selector.terms)
            if live and terms and _acts(armed, request) and armed.radius.hits(armed.seed, armed.name, who.id):
                return True
    return False


def _acts(armed: Armed, request: Any) -> bool:
    """Not where it only observes or changes no number; one that strikes prefix hits leaves one without a hit alone."""
    if not armed.fault.changes_content:
        return False
    prefill = request.prefill_stats  # None once the first token is out
    without_hit = prefill is None or prefill.num_cached_tokens <= 0
    on_hits = armed.seam is Seam.KV and armed.params.get("after_tokens") == 0
    return not (armed.observe or armed.noop or (on_hits and without_hit))
