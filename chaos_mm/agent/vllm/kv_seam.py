"""Faults on key-value blocks, struck between two steps; nobody else ever reads or inherits what they wrote.

The moment somebody else is about to use a hurt block, what stood there is put back first: a request that finds it in
the prefix cache, and a new owner that it is given to, whose unwritten slots would otherwise hold the fault's numbers.
"""

import logging
import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.layout import Column
from chaos_mm.agent.undo import Restored
from chaos_mm.agent.vllm.book import Flight
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.kv import Blocks, RequestKv
from chaos_mm.agent.vllm.kv_undo import BlockUndo
from chaos_mm.agent.vllm.taint import Taint, lease_key
from chaos_mm.core.fault import Seam

__all__ = ["VERIFY", "KvSeam"]

logger = logging.getLogger("chaos_mm.agent")
VERIFY = "CHAOS_MM_AGENT_VERIFY"
"""Set to 1, every strike also notes whether any block but the struck ones changed: the whole cache is read for it."""


class KvSeam:
    """Strikes, protects and verifies; called between steps, in the thread that runs them or with its lock held."""

    def __init__(self, flights: Flights, blocks: Blocks, taint: Taint) -> None:
        self.flights, self.book, self.runtime = flights, flights.book, flights.runtime
        self.blocks, self.taint = blocks, taint
        self.undo = BlockUndo(self.runtime.undo.limit_bytes)
        self.runtime.undo = self.undo
        self.runtime.on_release.append(self.released)
        self._verify = os.environ.get(VERIFY) == "1"
        self._armed: dict[Hashable, Armed] = {}
        self._hurt: dict[int, dict[Hashable, set[str]]] = {}  # hurt block -> lease -> requests it was hurt for
        self._before: dict[Hashable, dict[int, str]] = {}  # lease -> hurt block that was full -> its checksum
        self._verified: dict[Hashable, int] = {}  # lease -> blocks seen to hold again what stood there
        self._own: dict[Hashable, dict[str, int]] = {}  # lease -> who came under it -> its first block that none shares

    @property
    def hurt(self) -> int:
        """Blocks that hold a fault's numbers now."""
        return len(self._hurt)

    def protect(self) -> None:
        """Put back what others are about to use. Call with every step, before anything is computed."""
        if not (self._hurt or self.taint.since):
            return
        for _, fresh in self.book.fresh:
            self._give_back(block for block in fresh if block in self._hurt)
            self.scrub(block for block in fresh if self.taint.holds(block))
        for flight in self.book.arrivals:
            hits = flight.blocks[: flight.computed // self.book.block_size]
            self._give_back(b for b in hits if b in self._hurt and not self._was_hurt_for(b, flight))

    def put_back(self) -> None:
        """What stood in every hurt block, whoever has it now."""
        self._give_back(self._hurt)

    def scrub(self, blocks: Iterable[int]) -> None:
        """Put 0 for what is no number in blocks that nobody's tokens are in: their next owner's kernel multiplies slots
        that it has not filled by a weight of 0, and 0 times NaN is NaN. What a hurt request computed is not undone.
        """
        for block in blocks:
            for tensor in self.blocks.whole(block):
                tensor.copy_(tensor.float().nan_to_num(0.0, 0.0, 0.0).to(tensor.dtype))

    def strike(self) -> None:
        """Let every live lease of the seam act on those it has chosen."""
        self.runtime.fired(Seam.KV)
        for armed in filter(self.flights.acts, self.runtime.leases(Seam.KV)):
            for flight in self.book.arrivals:
                self._own.setdefault(armed.key, {})[flight.id] = flight.computed // self.book.block_size
            for flight in self.flights.chosen(armed):
                self._strike(armed, flight)

    def released(self, armed: Armed) -> Mapping[str, float] | None:
        """The lease was undone: compare the blocks that were full when they were hurt with what stood there."""
        before = self._before.pop(armed.key, {})
        self._own.pop(armed.key, None)
        if self._armed.pop(armed.key, None) is None:
            return None
        for block in before:
            self._compare(armed, block, before[block])
        for leases in self._hurt.values():
            leases.pop(armed.key, None)
        self._hurt = {block: leases for block, leases in self._hurt.items() if leases}
        return {"verified_blocks": float(self._verified.pop(armed.key, 0))}

    def _compare(self, armed: Armed, block: int, before: str) -> None:
        """Whether a block holds again what stood there; another lease's damage in it is none of this one's."""
        if not self._hurt.get(block, {}).keys() <= {armed.key}:
            return
        if self.blocks.checksum(block) == before:
            self._verified[armed.key] = self._verified.get(armed.key, 0) + 1
        else:
            armed.fail(f"key-value block {block} does not hold again what stood there")

    def _was_hurt_for(self, block: int, flight: Flight) -> bool:
        return any(flight.id in requests for requests in self._hurt[block].values())

    def _strike(self, armed: Armed, flight: Flight) -> None:
        touched: dict[int, str] = {}
        findable = self._findable(armed, flight)

        def write(block: int, view: Any, new: Any) -> None:
            stood = touched.get(block) or self.blocks.checksum(block)
            gone = None if block in findable else lambda: self._invalidated(armed, block)
            armed.write(view, new, invalidate=gone)
            touched[block] = stood  # not before: beyond the cap the write is refused

        others = self._checksums() if self._verify else {}
        armed.strike(RequestKv(self.blocks, self.book, flight, write, self._family), flight.id, "kv", "kv_cache")
        if touched:
            self._remember(armed, flight, touched)
            if self._verify:
                self._note_others(armed, others, touched)

    def _findable(self, armed: Armed, flight: Flight) -> set[int]:
        """Blocks that somebody may find in the prefix cache while the lease lives: these are hurt only if their bytes
        are kept, to be put back then. Whoever came under the lease shares no block that it has filled itself.
        """
        first = self._own.get(armed.key, {}).get(flight.id, len(flight.blocks))
        return set(flight.blocks[:first])

    def _remember(self, armed: Armed, flight: Flight, touched: Mapping[int, str]) -> None:
        full = set(flight.blocks[: flight.computed // self.book.block_size])
        self._armed[armed.key] = armed
        clean = {b: c for b, c in touched.items() if b in full and b not in self._hurt}
        self._before.setdefault(armed.key, {}).update(clean)
        for block in touched:
            self._hurt.setdefault(block, {}).setdefault(armed.key, set()).add(flight.id)
        self.taint.mark(lease_key(armed), flight, touched)
        armed.note("struck_blocks", {"request": self.runtime.identify(flight.id).shown, "blocks": sorted(touched)[:32]})

    def _family(self, flight: Flight) -> list[Flight]:
        """Other canaries with blocks: live ones, then finished ones, the newest first."""
        found = (*self.book.live.values(), *reversed(self.book.finished.values()))
        return [other for other in found if other is not flight and other.blocks and self.flights.canary(other)]

    def _give_back(self, blocks: Iterable[int]) -> None:
        for block in tuple(blocks):
            for key, done in self.undo.restore_under(self.blocks.whole(block)).items():
                self._book(self._armed.get(key), done)
            for key in self._hurt.pop(block, {}):
                before = self._before.get(key, {}).pop(block, None)
                if before is not None:
                    self._compare(self._armed[key], block, before)

    def _book(self, armed: Armed | None, done: Restored) -> None:
        if armed is None:
            return
        armed.book(Column.RESTORED, done.restored_elements)
        armed.book(Column.SKIPPED, done.skipped_elements)
        armed.book(Column.INVALIDATED, done.invalidated_blocks)
        if done.reason:
            armed.fail(done.reason)

    def _invalidated(self, armed: Armed, block: int) -> int:
        """Beyond the undo's cap: its bytes stay hurt, so nobody may find it again; the core evicts it on release."""
        self._before.get(armed.key, {}).pop(block, None)
        return 1

    def _checksums(self) -> dict[int, str]:
        return {block: self.blocks.checksum(block) for block in range(self.blocks.num_blocks)}

    def _note_others(self, armed: Armed, before: Mapping[int, str], touched: Mapping[int, str]) -> None:
        after = {block: self.blocks.checksum(block) for block in before}
        changed = sorted(block for block in before if before[block] != after[block])
        armed.note("checksums", {"changed": changed[:32], "beside": [b for b in changed if b not in touched][:32]})
