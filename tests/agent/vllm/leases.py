"""Leases held for the time of a ``with`` block, and what is read of them afterwards."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from chaos_mm.agent.board import Board
from chaos_mm.agent.layout import LEASES
from chaos_mm.core.canary import new_run_id
from chaos_mm.core.errors import NotInjectable
from tests.agent.vllm.server import Server

__all__ = ["LIVE", "Held", "arm", "engine_core_state", "eventually", "holding"]

T = TypeVar("T")
LIVE = {"selector": "live", "rate": 1.0}
"""The blast radius of a fault that cannot pick requests."""


class Held:
    """A lease of a server's agent."""

    def __init__(self, server: Server, name: str, owner: str) -> None:
        self.control, self.name, self.owner = server.control(), name, owner

    def read(self) -> dict[str, Any]:
        """Its evidence now."""
        return self.control.lease(self.name, self.owner)

    def release(self) -> None:
        """End it."""
        self.control.release(self.name, self.owner)

    def applied(self, seconds: float = 10.0) -> dict[str, Any]:
        """Its evidence once it has struck (figures follow the counters), or has failed to."""
        return eventually(
            self.read, lambda found: (found["applied"] and found["achieved"]) or found["errored"] > 0, seconds
        )

    def begun(self, seconds: float = 10.0) -> None:
        """Wait until a hold that picks requests stands: it begins at the engine's next wake-up, not with the lease."""
        eventually(self.read, lambda found: bool(found["achieved"]), seconds)

    def failed(self, seconds: float = 10.0) -> str:
        """What it failed with; the words follow the counter."""
        found = eventually(self.read, lambda found: "last_error" in found["engine"], seconds)
        assert (found["applied"], found["errored"]) == (0, 1)
        return str(found["engine"]["last_error"])

    def undone(self, seconds: float = 30.0) -> dict[str, Any]:
        """Its undo once it is no longer at work."""
        found = eventually(self.read, lambda lease: not (lease["undo"] or {"pending": True})["pending"], seconds)
        return dict(found["undo"])


@contextmanager
def holding(
    server: Server, fault: str, params: Mapping[str, Any], radius: Mapping[str, Any] | None = None, **fields: Any
) -> Iterator[Held]:
    """Inject; release at the end, and wait until the undo is over."""
    held = arm(server, fault, params, radius, **fields)
    try:
        yield held
    finally:
        held.release()
        held.undone()


def arm(
    server: Server, fault: str, params: Mapping[str, Any], radius: Mapping[str, Any] | None = None, **fields: Any
) -> Held:
    """Inject, for 120 s at most; waits while the agent still proves its seams after a start."""
    owner = new_run_id()
    body = {
        "owner": owner,
        "fault": fault,
        "params": dict(params),
        "blast_radius": dict(radius or {}),
        "ttl_seconds": 120,
        "keepalive_seconds": 120,
        **fields,
    }
    held = Held(server, fault, owner)
    end = time.monotonic() + 60
    while True:
        try:
            held.control.put_lease(fault, body)
        except NotInjectable as error:
            if "just being proven" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return held


def eventually(read: Callable[[], T], holds: Callable[[T], bool], seconds: float) -> T:
    """What ``read`` answers once it ``holds``. Fails with the last answer after ``seconds``."""
    end = time.monotonic() + seconds
    while not holds(found := read()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def engine_core_state(server: Server) -> int:
    """State of the engine core's newest lease, read from the shared page: no process of the server is asked."""
    (path,) = server.state.glob("agent-*.board")
    board = Board.open_any(path)
    try:
        (core,) = (worker for worker in board.workers() if worker.name == "engine_core")
        newest = max((core.column(slot) for slot in range(LEASES)), key=lambda column: column.serial)
        return newest.state
    finally:
        board.close()
