"""Blocks whose keys and values derive from a fault: bytes put back elsewhere do not heal them, they must be evicted.

A request that was hurt writes derived keys and values until it ends, however early the fault was undone, and whoever
takes such a block from the prefix cache goes on with the damage. Both are followed here, step by step.
"""

from collections.abc import Iterable

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.vllm.book import Flight, RequestBook

__all__ = ["Taint", "lease_key"]


def lease_key(armed: Armed) -> str:
    """A lease by owner and name, as the control process calls it."""
    return f"{armed.owner}/{armed.name}"


class Taint:
    """Per lease: the requests that carry its damage on, and the blocks that they have filled since."""

    def __init__(self, book: RequestBook) -> None:
        self._book = book
        self.since: dict[str, dict[str, int]] = {}
        """Lease -> request -> index of its first derived block; empty while nothing is to be followed."""
        self._blocks: dict[str, set[int]] = {}

    def mark(self, lease: str, flight: Flight, damaged: Iterable[int] = ()) -> None:
        """``flight`` was hurt before the coming step: what it computes from now on derives from the damage.

        ``damaged``: blocks that were hurt themselves; they go to the evicted ones too.
        """
        first = flight.computed // self._book.block_size
        since = self.since.setdefault(lease, {})
        since[flight.id] = min(first, since.get(flight.id, first))
        self._blocks.setdefault(lease, set()).update(damaged)

    def follow(self) -> None:
        """After the book has taken in a step: who goes on with the damage, and which blocks does it fill."""
        for lease, since in self.since.items():
            self._disown(lease, since)
            self._inherit(lease, since)
            for request_id in since:
                flight = self._book.live.get(request_id)
                if flight is not None:
                    self._blocks[lease].update(flight.blocks[since[request_id] :])

    def blocks(self, lease: str) -> tuple[int, ...]:
        """What must leave the prefix cache, ascending."""
        return tuple(sorted(self._blocks.get(lease, ())))

    def holds(self, block: int) -> bool:
        """Whether some lease's damage may be in it."""
        return any(block in blocks for blocks in self._blocks.values())

    def carriers(self, lease: str) -> tuple[str, ...]:
        """Live requests that still go on with the damage."""
        return tuple(sorted(self.since.get(lease, {}).keys() & self._book.live.keys()))

    def leases(self) -> tuple[str, ...]:
        """Every lease that left such blocks."""
        return tuple(sorted(self.since))

    def forget(self, lease: str) -> None:
        """Its blocks were evicted and its carriers have ended."""
        self.since.pop(lease, None)
        self._blocks.pop(lease, None)

    def _disown(self, lease: str, since: dict[str, int]) -> None:
        for flight, fresh in self._book.fresh:
            if flight.id not in since:  # its new owner fills it with its own
                self._blocks[lease].difference_update(fresh)

    def _inherit(self, lease: str, since: dict[str, int]) -> None:
        for flight in self._book.arrivals:
            hits = flight.blocks[: flight.computed // self._book.block_size]
            found = next((i for i, block in enumerate(hits) if block in self._blocks[lease]), None)
            if found is not None:
                since[flight.id] = min(found, since.get(flight.id, found))
