"""Bodies held in memory for decoding, each bounded, and all of them together."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from chaos_mm.proxy.policy import Undecodable
from chaos_mm.proxy.streams import source_errors

Pieces = AsyncGenerator[tuple[bytes, bytes], None]


@dataclass(slots=True)
class Budget:
    """Bytes of bodies held at once; only the event loop's thread touches it."""

    most: int
    held: int = 0

    def take(self, count: int) -> None:
        """Raises Undecodable("memory_budget") when it is spent."""
        if self.held + count > self.most:
            raise Undecodable("memory_budget")
        self.held += count


class Held:
    """One body being collected, as framed (`raw`) and as payload."""

    def __init__(self, budget: Budget, most: int) -> None:
        self.raw: list[bytes] = []
        self._payload: list[bytes] = []
        self._budget, self._most, self._size, self._taken = budget, most, 0, 0

    async def fill(self, body: Pieces) -> bytes:
        """Read to the end and give the payload.

        Raises Undecodable (body_too_large, memory_budget) with all that was read in `raw`; `body` can be read on.
        """
        with source_errors():
            async for raw, payload in body:
                self.raw.append(raw)
                self._payload.append(payload)
                self._size += len(payload)
                if self._size > self._most:
                    raise Undecodable("body_too_large")
                self._budget.take(len(raw))
                self._taken += len(raw)
        return b"".join(self._payload)

    def release(self) -> None:
        """Return to the budget what was taken from it."""
        self._budget.held -= self._taken
        self._taken = 0
