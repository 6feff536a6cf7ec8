"""Which seams an engine core has: everything that was not seen working is refused by name."""

from typing import Any

from chaos_mm.core.fault import Seam

__all__ = ["core_refusals"]

_ALL = (Seam.BLOCK_POOL, Seam.SCHEDULER, Seam.MEDIA_KEY, Seam.ENCODER_CACHE)


def core_refusals(core: Any) -> dict[Seam, str]:
    """Why a seam is not to be had in this engine core, by name; a seam that is not in it is.

    ``core``: vLLM's ``EngineCore``, as it stands after its start.
    """
    whole = _whole(core)
    if whole:
        return dict.fromkeys(_ALL, whole)
    refused = {Seam.MEDIA_KEY: _media_keys(core), Seam.ENCODER_CACHE: _encoder_cache(core)}
    return {seam: why for seam, why in refused.items() if why}


def _whole(core: Any) -> str:
    parallel, scheduler = core.vllm_config.parallel_config, core.scheduler
    if type(scheduler).__module__ not in ("vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler"):
        return f"a scheduler of another make ({type(scheduler).__qualname__}) was not seen working"
    if parallel.data_parallel_size > 1:
        return f"data parallelism ({parallel.data_parallel_size}) was not seen working: each rank schedules for itself"
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    if groups != 1:
        return f"{groups} key-value cache groups were not seen working: block ids repeat between groups"
    return ""


def _media_keys(core: Any) -> str:
    scheduler = core.scheduler
    if not core.vllm_config.model_config.supports_multimodal_inputs:
        return "the model takes no media"
    if scheduler.kv_cache_manager.block_pool.hash_block_size != scheduler.block_size:
        return "prefix hashes of another size than a block were not seen working"
    return _encoder_cache(core)


def _encoder_cache(core: Any) -> str:
    manager = core.scheduler.encoder_cache_manager
    if not core.vllm_config.model_config.supports_multimodal_inputs:
        return "the model takes no media"
    if type(manager).__name__ != "EncoderCacheManager":
        return f"an encoder cache of another make ({type(manager).__qualname__}) was not seen working"
    if core.scheduler.ec_connector is not None:
        return "an encoder cache connector was not seen working: other engines hold entries too"
    return ""
