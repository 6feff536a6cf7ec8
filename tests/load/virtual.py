"""Virtual time for the open loop: sleeping moves a clock, so a minute of traffic takes milliseconds."""

import asyncio
import heapq
from collections.abc import Mapping

from chaos_mm.load.client import Reply


class Clock:
    """A clock that moves when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class VirtualTime(Clock):
    """``sleep`` parks a task; ``advance`` wakes the tasks in the order in which they are due."""

    def __init__(self) -> None:
        super().__init__()
        self._parked: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._parked, (self.now + seconds, self._count, waiter))
        await waiter

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        end = self.now + seconds
        await settle()
        while self._parked and self._parked[0][0] <= end:
            due, _, waiter = heapq.heappop(self._parked)
            self.now = max(self.now, due)
            if not waiter.done():
                waiter.set_result(None)
            await settle()
        self.now = end


async def settle() -> None:
    """Run whatever can run without time passing."""
    for _ in range(12):
        await asyncio.sleep(0)


class Service:
    """A transport in virtual time that answers after ``seconds``, or never: then the deadline ends the request."""

    def __init__(self, time: VirtualTime, seconds: float = 0.2) -> None:
        self.time, self.seconds = time, seconds
        self.sent: list[tuple[float, str]] = []
        self.deadlines: dict[str, float] = {}
        self.error = ""
        self.answer = "4072"

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
        sent_at = self.time.now
        self.sent.append((sent_at, headers["x-request-id"]))
        self.deadlines[headers["x-request-id"]] = deadline
        if sent_at + self.seconds > deadline:
            await self.time.sleep(deadline - sent_at)
            return Reply(sent_at=sent_at, ended_at=self.time.now, error="timeout")
        await self.time.sleep(self.seconds)
        reply = Reply(sent_at=sent_at, ended_at=self.time.now, status=200, error=self.error)
        if not self.error:
            reply.content(self.answer, self.time.now)
            reply.finish_reason, reply.complete = "stop", True
        return reply
