"""The keys by which vLLM knows pictures again, cut down to a few bits for canaries: the seam ``media_key``.

A medium has two keys in vLLM. ``mm_hash`` finds what the processor made of it and stays whole here. ``identifier``
finds its encoder output and goes into the hash of every key-value block that holds it or comes after it; this one is
cut, in the engine core, before the request's block hashes are made. A cut key starts with a secret of this process and
lease, so that nobody's key can be equal to one.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.vllm.block_pool import evict_blocks
from chaos_mm.agent.vllm.caches import drop_entries
from chaos_mm.agent.vllm.preemption import request_info

__all__ = ["MediaKeySeam", "MediaMask"]


@dataclass(eq=False)
class MediaMask:
    """``core.engine.MediaKeys`` of one lease, and the book of what was stored under its cut keys."""

    armed: Armed
    seam: "MediaKeySeam"
    bits: int = 0
    prefix: str = ""
    hashes: dict[str, tuple[list[Any], int]] = field(default_factory=dict)
    """Of each masked request: its live list of block hashes, and the first that a cut key went into."""
    arriving: set[str] = field(default_factory=set)
    """Masked requests that the scheduler has not seen yet."""
    _salt: bytes = field(default=b"", repr=False)

    def mask(self, bits: int, salt: bytes) -> None:
        """Keep ``bits`` bits of the selected canaries' keys from now on."""
        self._salt = hashlib.blake2b(salt, key=self.seam.secret, digest_size=16).digest()
        self.prefix = f"cmm-{self._salt.hex()}-"
        self.bits = bits

    def restore(self) -> dict[str, float]:
        """Whole keys again from now on; what was stored under cut ones is flushed, as far as nobody uses it.

        ``in_use`` requests that still run keep theirs until ``MediaKeySeam.flush`` finds them gone.
        """
        self.seam.stop(self)
        return self.seam.flush_one(self)

    def cut(self, key: str) -> str:
        """The cut key of ``key``, one of 2 ** bits."""
        digest = hashlib.blake2b(key.encode(), key=self._salt, digest_size=8).digest()
        return f"{self.prefix}{int.from_bytes(digest, 'big') % (1 << self.bits):04x}"


class MediaKeySeam:
    """All masks of an engine core. Requests pass in its input thread, all else is its loop's, between two steps."""

    def __init__(self, scheduler: Any, block_tokens: int, forget: Callable[[str], int]) -> None:
        """``block_tokens``: tokens that one block hash covers. ``forget(prefix)`` drops encoder outputs in every worker
        and says how many are left.
        """
        self.secret = secrets.token_bytes(32)
        self._scheduler, self._block_tokens, self._forget = scheduler, block_tokens, forget
        self._masks: list[MediaMask] = []
        self._lock = threading.Lock()

    def for_lease(self, armed: Armed) -> MediaMask:
        """What the lease's fault acts on."""
        made = MediaMask(armed, self)
        with self._lock:
            self._masks.append(made)
        return made

    def cut_keys(self, request: Any) -> MediaMask | None:
        """Cut the keys of a new request (vLLM's ``EngineCoreRequest``) that a lease picks; the lease's mask then."""
        # Media with one key only: the processor's cache would be asked by the cut one too.
        if not request.mm_features or any(feature.mm_hash is None for feature in request.mm_features):
            return None
        with self._lock:
            for mask in self._masks:
                if mask.bits and mask.armed.chosen(request_info(request)):
                    self._cut(mask, request)
                    return mask
        return None

    def stop(self, mask: MediaMask) -> None:
        """Cut no more keys for it."""
        with self._lock:
            mask.bits = 0

    def made(self, mask: MediaMask, request: Any) -> None:
        """The masked request as vLLM made it (its ``Request``): remember which of its block hashes hold a cut key.

        Whatever this raises, the request must not go on: what it would store could not be flushed.
        """
        try:
            first = min(feature.mm_position.offset for feature in request.mm_features) // self._block_tokens
            found = request.block_hashes, first
        except Exception as error:
            mask.armed.broke(request.request_id, error)
            raise
        with self._lock:
            mask.hashes[request.request_id] = found

    def lost(self, mask: MediaMask, request: str) -> None:
        """The masked request never came to be."""
        with self._lock:
            mask.arriving.discard(request)

    @property
    def expects(self) -> bool:
        """Whether a masked request is on its way to the scheduler."""
        return any(mask.arriving for mask in self._masks)

    def arrived(self, request: str) -> None:
        """The scheduler has that request now."""
        with self._lock:
            for mask in self._masks:
                mask.arriving.discard(request)

    def flush(self) -> dict[str, int]:
        """Try again what ended leases left behind; what then is left, of all of them together."""
        left = {"flushed_entries": 0, "flushed_blocks": 0, "left_entries": 0, "left_blocks": 0, "in_use": 0}
        for mask in [mask for mask in self._masks if not mask.armed.live]:
            for name, value in self.flush_one(mask).items():
                left[name] += int(value)
        return left

    def flush_one(self, mask: MediaMask) -> dict[str, float]:
        """Flush what one lease left behind; every figure is read back from the caches afterwards."""
        if not mask.prefix:
            self._drop(mask)
            return {}
        with self._lock:
            known, arriving = dict(mask.hashes), len(mask.arriving)
        found = self._flush_blocks(known) | self._flush_entries(mask.prefix)
        found["in_use"] = float(arriving + sum(request in self._scheduler.requests for request in known))
        if not (found["in_use"] or found["left_entries"] or found["left_blocks"]):
            self._drop(mask)
        return found

    def _cut(self, mask: MediaMask, request: Any) -> None:
        """All of its keys or, where that fails, none: nothing may be stored under a key that nobody follows."""
        whole = [feature.identifier for feature in request.mm_features]
        try:
            for feature in request.mm_features:
                feature.identifier = mask.cut(feature.identifier)
            mask.arriving.add(request.request_id)
            mask.armed.count(request.request_id, "media_key", {"cut_keys": float(len(whole))})
        except Exception as error:
            for feature, key in zip(request.mm_features, whole, strict=True):
                feature.identifier = key
            mask.arriving.discard(request.request_id)
            mask.armed.broke(request.request_id, error)
            raise

    def _flush_blocks(self, requests: dict[str, tuple[list[Any], int]]) -> dict[str, float]:
        flushed = 0
        while found := self._blocks(requests):  # one hash may have several blocks, and the pool shows the first
            evicted = evict_blocks(self._scheduler.kv_cache_manager, found)["evicted_blocks"]
            if not evicted:
                break
            flushed += evicted
        return {"flushed_blocks": float(flushed), "left_blocks": float(len(self._blocks(requests)))}

    def _blocks(self, requests: dict[str, tuple[list[Any], int]]) -> set[int]:
        """Ids of the blocks that the prefix cache would hand out for these requests' cut hashes."""
        pool = self._scheduler.kv_cache_manager.block_pool
        hashes = [h for block_hashes, first in requests.values() for h in list(block_hashes)[first:]]
        found = (pool.get_cached_block(block_hash, [0]) or () for block_hash in hashes)
        return {block.block_id for blocks in found for block in blocks}

    def _flush_entries(self, prefix: str) -> dict[str, float]:
        manager = self._scheduler.encoder_cache_manager
        dropped = drop_entries(manager, [key for key in manager.freeable if key.startswith(prefix)])
        kept = sum(key.startswith(prefix) for key in manager.cached)
        # While a request still uses one, the workers need theirs too.
        left = kept or self._forget(prefix)
        return {"flushed_entries": float(dropped), "left_entries": float(left)}

    def _drop(self, mask: MediaMask) -> None:
        with self._lock:
            if mask in self._masks:
                self._masks.remove(mask)
