"""Blocks of requests that a lease may hurt never enter the prefix cache: nobody else can find what derives from damage.

The engine core decides what is cached and the worker what is hurt, in other processes; so whoever a live lease has
chosen is left out from then on until its end. Such a request gets its answer as always; only its blocks are not shared.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process
from chaos_mm.core.fault import Seam

__all__ = ["install", "may_be_hurt"]

logger = logging.getLogger("chaos_mm.agent")
_SEAMS = (Seam.KV, Seam.KV_LOAD, Seam.ATTENTION, Seam.EMBEDDING)
_SAME_CONTENT = frozenset({"attention_delay", "attention_timeout", "attention_hang", "attention_error"})
"""Faults that change time or end the engine, and no number: what is computed meanwhile may be shared."""
_MARK = "chaos_mm_may_be_hurt"
_gates: list[Callable[[], bool]] = []
"""``armed`` of the engine core's runtime, once it is known: asked for every request of every step."""


def install() -> None:
    """Put the door into vLLM's coordinator of key-value caches, once a process."""
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator

    if not hasattr(KVCacheCoordinator.cache_blocks, "chaos_mm"):
        KVCacheCoordinator.cache_blocks = _door(KVCacheCoordinator.cache_blocks)


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
        if not _gates:
            _gates.append(process.runtime("engine_core").armed)
        found = _gates[0]() and may_be_hurt(process.runtime("engine_core"), request)
    except Exception:  # an exception here would end the engine
        logger.exception("whether a request may be hurt could not be told; its blocks are not shared")
        found = True
    if found:
        request.__dict__[_MARK] = True
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
    if armed.fault.name in _SAME_CONTENT:
        return False
    prefill = request.prefill_stats  # None once the first token is out
    without_hit = prefill is None or prefill.num_cached_tokens <= 0
    on_hits = armed.seam is Seam.KV and armed.params.get("after_tokens") == 0
    return not (armed.observe or armed.noop or (on_hits and without_hit))
