"""A ceiling on what the engine's process may allocate."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.engine import EngineMemory
from chaos_mm.core.fault import Effect, Param, Point, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY, effect=Effect.RAISES)
def memory_ceiling(
    memory: EngineMemory,
    rng: Rng,
    *,
    headroom_mib: Annotated[
        float, Param("what may still be allocated above what is used now", ge=0, le=4e6, unit="MiB")
    ] = 64.0,
) -> Iterator[Mapping[str, float]]:
    """Let the engine's process allocate no more than a headroom, as a container's limit or a neighbour's model does.

    What is allocated stays; an allocation beyond the ceiling fails with the engine's own error. On a CUDA device it is
    the caching allocator's limit (``torch.cuda.set_per_process_memory_fraction``), which libraries that allocate for
    themselves do not meet; on the CPU it is the address space of the process (``RLIMIT_AS``). Whether the engine
    survives the failure is its adapter's word on the lease. The end lifts the ceiling.

    Reports ``used_bytes`` before and ``ceiling_bytes``.
    """
    used = memory.used()
    try:
        ceiling = memory.set_ceiling(int(headroom_mib * (1 << 20)))
        yield {"used_bytes": float(used), "ceiling_bytes": float(ceiling)}
    finally:
        memory.lift_ceiling()
