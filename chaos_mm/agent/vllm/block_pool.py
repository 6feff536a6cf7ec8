"""Key-value blocks taken away from vLLM's engine core and given back: the seam ``block_pool``."""

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["HeldBlocks", "cached_among", "evict_blocks", "kv_facts"]


class HeldBlocks:
    """``core.engine.BlockPool`` of one lease. Only the engine core's own loop may call it, between two steps."""

    def __init__(self, pool: Any) -> None:
        """``pool``: vLLM's ``BlockPool``."""
        self._pool, self._held = pool, list[Any]()

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

    def hold(self, blocks: int) -> int:
        """Take so many of the free blocks, fewer where there are fewer; how many were taken."""
        taken = self._pool.get_new_blocks(min(blocks, self.free))
        self._held += taken
        return len(taken)

    def release(self) -> int:
        """Give every held block back; how many."""
        held, self._held = self._held, []
        self._pool.free_blocks(held)
        return len(held)


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
