"""One deadline for everything that a thread asks of others, whatever each client would allow itself."""

import contextlib
import contextvars
import time
from collections.abc import Iterator

__all__ = ["ends_at", "within"]

_ends: contextvars.ContextVar[float] = contextvars.ContextVar("chaos_mm_deadline", default=float("inf"))


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Everything asked in the block ends ``seconds`` from now at the latest; an outer, earlier end holds on."""
    token = _ends.set(ends_at(seconds))
    try:
        yield
    finally:
        _ends.reset(token)


def ends_at(seconds: float) -> float:
    """``seconds`` from now on the monotonic clock, or the end of the ``within`` around it when that is earlier."""
    return min(time.monotonic() + seconds, _ends.get())
