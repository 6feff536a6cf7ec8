"""The child process that holds memory for the host, and cannot outlive it.

``python -m chaos_mm.host.holder JSON``, with ``{"parent", "device", "schedule"}``; ``device`` -1 is RAM. It is killed
with its parent (PR_SET_PDEATHSIG, prctl(2)), ends when its standard input ends, and half a second after the last
deadline that it was told (``until SECONDS``, CLOCK_MONOTONIC), should the host be stuck. It allocates nothing before
the line ``go``. What it holds it says in JSON lines on its standard output, whenever it changes or after a second.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any

from chaos_mm.host.allocators import Allocator, Device, Ram, largest_free_block
from chaos_mm.host.schedule import Schedule

__all__ = ["Holder", "main"]

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 0.5
_TICK_SECONDS = 0.02
_SAY_SECONDS = 1.0
_SLACK_BYTES = 16 << 20  # what others take and give meanwhile is no reason to follow each time


class Holder:
    """Holds what the schedule wants, never below its floor."""

    def __init__(self, allocator: Allocator, schedule: Schedule) -> None:
        self._allocator, self.schedule = allocator, schedule
        self.free_at_start = allocator.free()
        self._blocks: list[tuple[int, Any]] = []
        self.held = self.peak = 0
        self.full = self.fragmented = self.begun = False
        self.largest = -1

    def step(self, elapsed: float) -> bool:
        """Take or drop one block; whether there is more to do at once."""
        wanted = self.schedule.wanted(elapsed, self.free_at_start)
        room = self._allocator.free() - self.schedule.floor_bytes
        more = False
        if self._blocks and (self.held > wanted + self.schedule.block_bytes or room < -_SLACK_BYTES):
            self._drop(len(self._blocks) - 1)
            more = True
        elif not self.fragmented and self.held < wanted and room > 0:
            more = self._take(min(self.schedule.block_bytes, wanted - self.held, room))
        self._see(elapsed, room)
        return more

    def _take(self, size: int) -> bool:
        block = self._allocator.take(size)
        self.full = block is None
        if block is not None:
            self._blocks.append((size, block))
            self.held += size
            self.peak = max(self.peak, self.held)
        return block is not None

    def _drop(self, index: int) -> None:
        size, block = self._blocks.pop(index)
        self._allocator.drop(block)
        self.held -= size

    def _see(self, elapsed: float, room: int) -> None:
        """At work from the moment the level stands, or as near to it as floor and allocator allow."""
        near = elapsed >= self.schedule.ramp_seconds and (self.full or room <= _SLACK_BYTES) and self.held > 0
        if self.begun or not (near or self.schedule.begun(elapsed, self.free_at_start, self.held)):
            return
        self.begun = True
        if self.schedule.pattern == "fragment":
            for index in range(len(self._blocks) - 1, -1, -2):
                self._drop(index)
            self.fragmented, self.largest = True, largest_free_block(self._allocator)

    def told(self) -> dict[str, Any]:
        """What to say: bytes, and whether the fault is at work."""
        found = {"held_bytes": self.held, "peak_held_bytes": self.peak, "free_bytes": self._allocator.free()}
        found |= {"largest_free_block_bytes": self.largest} if self.largest >= 0 else {}
        return {"begun": self.begun, "full": self.full, "figures": found}


class _Input:
    """Lines of standard input, without waiting for them longer than asked."""

    def __init__(self) -> None:
        self.until, self.go, self.ended = float("inf"), False, False
        self._rest = b""

    def read(self, seconds: float) -> None:
        if not select.select([0], [], [], seconds)[0]:
            return
        part = os.read(0, 4096)
        self.ended = not part
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if line == b"go":
                self.go = True
            elif line.startswith(b"until "):
                self.until = float(line[6:])

    @property
    def over(self) -> bool:
        return self.ended or time.monotonic() > self.until + _GRACE_SECONDS


def main(what: dict[str, Any]) -> None:
    """Hold until the input ends."""
    _tie_to(int(what["parent"]))
    device = int(what["device"])
    allocator: Allocator = Ram() if device < 0 else Device(device)
    orders = _Input()
    _say({"ready": True})
    while not (orders.go or orders.over):
        orders.read(_TICK_SECONDS)
    _hold(Holder(allocator, Schedule.from_json(what["schedule"])), orders)


def _hold(holder: Holder, orders: _Input) -> None:
    began, said, told_at = time.monotonic(), None, 0.0
    while not orders.over:
        more = holder.step(time.monotonic() - began)
        now = time.monotonic()
        if (holder.begun, holder.full) != said or now - told_at >= _SAY_SECONDS:
            said, told_at = (holder.begun, holder.full), now
            _say(holder.told())
        orders.read(0.0 if more else _TICK_SECONDS)


def _tie_to(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the wish was made
        sys.exit(f"the host {parent} is gone")


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what, allow_nan=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
