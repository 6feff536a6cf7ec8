"""An allocation inside the engine that fails."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from chaos_mm.core.engine import EngineMemory
from chaos_mm.core.fault import Effect, Param, Point, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY, effect=Effect.RAISES)
def allocation_failure(
    memory: EngineMemory,
    rng: Rng,
    *,
    site: Annotated[
        Literal["attention", "kv_growth", "encoder"], Param("whose allocation: attention, KV growth or an encoder")
    ] = "encoder",
    times: Annotated[int, Param("how many allocations fail, one after another", ge=1, le=1000)] = 1,
) -> Iterator[Mapping[str, float]]:
    """Let allocations at one site fail with the engine's own out-of-memory error, as an under-counted profile does.

    Published relatives: vLLM issue 16570 and pull request 48469, where the profiling run counts too little for the
    encoder and a later request meets the end of the device. No memory is taken: the error alone is the device's, so
    it strikes at the named site and nowhere else. Whether the engine survives it is its adapter's word on the lease.

    The lease's end lets every allocation through that has not failed yet. Only one that did fail counts as a hit, and
    the lease's sites say where. Reports ``times`` as set and ``failed_allocations``. Raises InvalidParams for a site
    that this engine lacks.
    """
    try:
        memory.fail_at(site, times)
        yield {"times": float(times)}
    finally:
        memory.stop_failing()
