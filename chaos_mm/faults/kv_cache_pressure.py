"""An engine with too little memory for keys and values."""

from collections.abc import Generator, Mapping
from typing import Annotated

from chaos_mm.core.engine import BlockPool
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(
    Target.SCHEDULER,
    dose="share",
    seam=Seam.BLOCK_POOL,
    presets={1: {"share": 0.5}, 2: {"share": 0.75}, 3: {"share": 0.9}, 4: {"share": 0.95}, 5: {"share": 1.0}},
)
def kv_cache_pressure(
    pool: BlockPool,
    rng: Rng,
    *,
    share: Annotated[float, Param("blocks to hold, of those free at the start", ge=0, le=1)] = 0.9,
    floor: Annotated[int, Param("leave at least so many free", ge=0, le=1_000_000, unit="blocks")] = 4,
    ramp_seconds: Annotated[float, Param("evenly over this long; 0: at once", ge=0, le=3600, unit="s")] = 0.0,
) -> Generator[Mapping[str, float], None, Mapping[str, float]]:
    """Hold key-value blocks, as long prompts, a leak or requests nobody waits for any more do.

    Requests queue, are preempted and computed again; caches lose what they kept, since free blocks hold it. Answers
    must stay the same: point damage in fluent text was reported with the pool at its limit (vLLM issue 50702), and
    blocks pinned by clients that had left (vLLM issues 46283 and 50425). The floor keeps the engine able to run at
    all: a pool without a free block admits nobody.

    Counts as live traffic: a request cannot be picked out. A ramp takes the first block at once and the others between
    steps, as they fall due and are free. All come back with the lease, in the middle of a ramp too.

    Reports ``held_blocks``, ``free_blocks`` left and ``held_share`` of the whole pool, anew each time that a ramp has
    taken some; at the end the most that were held at once. Raises ChaosMMError where no block can be held, since then
    nothing is exercised.
    """
    wanted = min(round(share * pool.free), max(0, pool.free - floor))
    try:
        if wanted <= 0 or pool.hold(wanted, floor=floor, over_seconds=ramp_seconds) == 0:
            raise ChaosMMError(f"kv_cache_pressure: no block of the {pool.free} free ones can be held (floor {floor})")
        yield pool.figures()
        return {"held_blocks": float(pool.peak), "held_share": pool.peak / pool.total}
    finally:
        held, free = pool.held, pool.free
        if pool.release() != held or pool.free != free + held:
            raise ChaosMMError(f"kv_cache_pressure: {held} blocks were held; {pool.free - free} more are free again")
