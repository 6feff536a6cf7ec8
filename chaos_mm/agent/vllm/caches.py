"""vLLM's cache of encoder outputs, as the scheduler keeps it: the seam ``encoder_cache``.

The scheduler's ``EncoderCacheManager`` decides by key what is kept; the workers keep the tensors and drop those whose
keys come with the next step's ``free_encoder_mm_hashes``.
"""

import math
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["EncoderStore", "adds_up", "drop_entries", "forget_media", "largest_medium"]


class EncoderStore:
    """``core.engine.EncoderCache``. Only the engine core's own loop may call it, between two steps."""

    def __init__(self, manager: Any, floor: Callable[[], int]) -> None:
        """``manager``: vLLM's; ``floor()``: tokens of the largest medium that the model takes."""
        self._manager, self._floor = manager, floor

    @property
    def entries(self) -> int:
        """Encoder outputs that are kept, in use or not."""
        return len(self._manager.cached)

    @property
    def budget(self) -> int:
        """Capacity in encoder tokens."""
        return int(self._manager.cache_size)

    def evict(self, share: float) -> int:
        """Drop that share, rounded up, of the entries that nobody is using, the oldest first; how many."""
        idle = list(self._manager.freeable)
        return drop_entries(self._manager, idle[: math.ceil(share * len(idle))])

    def set_budget(self, budget: int) -> None:
        """Let the cache hold so many tokens; never fewer than the largest medium has, or its request waits for ever.

        Entries that find no room go, the oldest first; those in use stay until their requests are done with them.
        """
        manager = self._manager
        change = max(budget, self._floor()) - manager.cache_size
        manager.cache_size += change
        manager.num_free_slots += change
        manager.num_freeable_slots += change
        while manager.num_free_slots < 0 and manager.freeable:
            drop_entries(manager, [next(iter(manager.freeable))])


def drop_entries(manager: Any, keys: Collection[str]) -> int:
    """Drop entries that no request is using, as the manager itself does where it needs room; how many were there."""
    dropped = [key for key in keys if key in manager.freeable]
    for key in dropped:
        manager.num_free_slots += manager.freeable.pop(key)
        del manager.cached[key]
        del manager.num_embeds_by_hash[key]
        manager.freed.append(key)
    return len(dropped)


def adds_up(manager: Any) -> str:
    """Whether the manager's book is the one this module knows how to keep; empty, or what does not fit."""
    kept = sum(manager.num_embeds_by_hash.values())
    idle = sum(manager.freeable.values())
    if manager.num_free_slots != manager.cache_size - kept:
        return f"{manager.num_free_slots} free slots of {manager.cache_size} with {kept} kept"
    if manager.num_freeable_slots != manager.num_free_slots + idle:
        return f"{manager.num_freeable_slots} freeable slots, {manager.num_free_slots} free and {idle} idle"
    return ""


def forget_media(worker: Any, prefix: str) -> list[int]:
    """In a worker: drop kept encoder outputs whose key begins so; how many there were, and how many are left."""
    outputs = _outputs(worker.model_runner)
    found = [key for key in outputs if key.startswith(prefix)]
    for key in found:
        del outputs[key]
    return [len(found), sum(key.startswith(prefix) for key in outputs)]


def largest_medium(worker: Any) -> int:
    """In a worker: encoder tokens of the largest medium that the model takes; 0 where it takes none."""
    budget = getattr(worker.model_runner, "mm_budget", None)
    return max(budget.mm_max_toks_per_item.values(), default=0) if budget else 0


def _outputs(runner: Any) -> dict[str, Any]:
    """Kept tensors by key; runner V2 wraps the mapping in an object."""
    cache = runner.encoder_cache
    found: dict[str, Any] = getattr(cache, "encoder_outputs", cache)
    return found
