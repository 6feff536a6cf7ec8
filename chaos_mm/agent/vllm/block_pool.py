"""Key-value blocks taken away from vLLM's engine core and given back: the seam ``block_pool``."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.agent.armed import Armed

__all__ = ["HeldBlocks", "cached_among", "evict_blocks", "kv_facts"]


class HeldBlocks:
    """``core.engine.BlockPool`` of one lease. Only the engine core's own loop may call it, between two steps."""

    def __init__(self, pool: Any, armed: Armed | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``pool``: vLLM's ``BlockPool``; ``armed``: the lease that what is taken later counts for."""
        self._pool, self._armed, self._clock = pool, armed, clock
        self._held: list[Any] = []
        self._ramp: _Ramp | None = None
        self.peak = 0

    @property
    def total(self) -> int:
        """Blocks of the pool but the null block, which nobody can have."""
        return int(self._pool.num_gpu_blocks) - 1

    @property
    def free(self) -> int:
        """Blocks that a request could have now; those that the prefix cache keeps are among them."""
        return int(self._pool.get_num_free_blocks())

    @property
    def held(self) -> int:
        """Blocks that this lease holds."""
        return len(self._held)

    def hold(self, blocks: int, *, floor: int = 0, over_seconds: float = 0.0) -> int:
        """See ``BlockPool.hold``; fewer where there are fewer. What a ramp wants is taken by ``advance``."""
        if over_seconds > 0:
            self._ramp = _Ramp(blocks, floor, self._clock(), over_seconds)
            blocks = min(blocks, 1)
        return self._take(blocks, floor)

    def advance(self) -> bool:
        """Take what the ramp wants by now, as far as it is free; whether more is to come. Never raises."""
        ramp, armed = self._ramp, self._armed
        if ramp is None or armed is None or not armed.live:
            return False
        try:
            if self._take(ramp.due(self._clock()) - self.held, ramp.floor):
                armed.hit(str(armed.seam), self.figures())
        except Exception as error:  # whatever the engine's pool raises must not become the engine's own error
            armed.refused(f"{type(error).__name__}: {error}")
            self._ramp = None
        return self._ramp is not None and self.held < ramp.blocks

    def figures(self) -> dict[str, float]:
        """See ``BlockPool.figures``."""
        share = self.held / self.total if self.total else 0.0
        return {"held_blocks": float(self.held), "free_blocks": float(self.free), "held_share": share}

    def release(self) -> int:
        """Give every held block back and take no more; how many."""
        held, self._held, self._ramp = self._held, [], None
        self._pool.free_blocks(held)
        return len(held)

    def _take(self, blocks: int, floor: int) -> int:
        taken = self._pool.get_new_blocks(max(0, min(blocks, self.free - floor)))
        self._held += taken
        self.peak = max(self.peak, self.held)
        return len(taken)


@dataclass(frozen=True)
class _Ramp:
    """So many blocks, evenly over some seconds from ``began`` on."""

    blocks: int
    floor: int
    began: float
    seconds: float

    def due(self, now: float) -> int:
        """How many are to be held by now; one from the start."""
        return max(1, int(self.blocks * min(1.0, (now - self.began) / self.seconds)))


def evict_blocks(manager: Any, blocks: Collection[int]) -> dict[str, int]:
    """Take these blocks out of the prefix cache, by id; how many were in it, and how many still are.

    ``manager``: vLLM's ``KVCacheManager``. A block that a request is using stays with it and is no longer found by
    others.
    """
    known = {block for block in blocks if 0 < block < manager.block_pool.num_gpu_blocks}
    before = cached_among(manager, known)
    manager.evict_blocks(known)
    return {"evicted_blocks": before - cached_among(manager, known), "cached_left": cached_among(manager, known)}


def cached_among(manager: Any, blocks: Collection[int]) -> int:
    """How many of these blocks the prefix cache would still hand out."""
    pool = manager.block_pool
    return sum(pool.blocks[block].block_hash is not None for block in blocks)


def kv_facts(manager: Any) -> Mapping[str, float | int]:
    """``blocks_total``, ``blocks_free`` (the null block left out) and ``usage_ratio``, from 0 to 1."""
    pool = manager.block_pool
    return {
        "blocks_total": int(pool.num_gpu_blocks) - 1,
        "blocks_free": int(pool.get_num_free_blocks()),
        "usage_ratio": float(manager.usage),
    }
