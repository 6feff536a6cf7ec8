"""A board with a miniature engine in this very process, and the book that arms it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.mirror import Mirror
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Point
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from tests.agent.declared import FAULTS

if TYPE_CHECKING:
    from tests.agent.miniature import Engine

TOKEN = "t" * 43


def canary(n: int, run: str = "r1") -> str:
    return canary_id(canary_key(TOKEN), run, n)


def body(fault: str, **more: Any) -> dict[str, Any]:
    return {"owner": "r1", "fault": fault, "ttl_seconds": 60, "keepalive_seconds": 10, **more}


def until(holds: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for something that another thread or process brings about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


@dataclass
class House:
    """Everything of an engine in one process."""

    board: Board
    runtime: Runtime
    engine: "Engine"
    mirror: Mirror
    book: LeaseBook

    def put(self, fault: str, name: str = "a", **more: Any) -> Lease:
        return self.book.put(name, body(fault, **more))

    def release(self, name: str = "a") -> Lease:
        lease = self.book.release(name, "r1")
        assert lease is not None
        return lease

    def undone(self, lease: Lease) -> dict[str, Any]:
        """Wait for the end of its undo; its evidence."""
        until(lambda: lease.undo is not None and not lease.undo.pending)
        return lease.to_json(self.book.clock())


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board.create(tmp_path / "board", new_nonce())
    yield made
    made.close()


@pytest.fixture
def house(board: Board) -> Iterator[House]:
    import torch

    from tests.agent.miniature import Engine

    torch.set_num_threads(1)
    runtime = Runtime(board, FAULTS, token=TOKEN, process="engine")
    engine = Engine(runtime)
    runtime.watch(engine.guard)
    mirror = Mirror(engine, board)
    limits = Limits(allow_live=True, max_rate=1.0, max_owners=4)
    book = LeaseBook(FAULTS, point=Point.AGENT, limits=limits, actuator=mirror)
    mirror.start()
    until(lambda: all(mirror.proofs.reason(seam) == "" for seam in engine.seams))
    yield House(board, runtime, engine, mirror, book)
    mirror.close()
    runtime.close()
