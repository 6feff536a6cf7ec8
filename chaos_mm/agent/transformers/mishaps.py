"""What the agent itself fails at in the middle of somebody's request: the request goes on with what it had.

What a fault means to leave, such as a ``Raise``, is marked where it is made; anything else that comes to a door is an
error of ours. It is counted, logged once a kind without its text (which may hold what users wrote), and booked as
``errored`` once a lease that it may have kept from striking.
"""

import contextlib
import logging
import threading
import weakref
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.layout import Column
from chaos_mm.agent.meant import is_meant
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.fault import Seam

__all__ = ["Door", "Mishaps"]

logger = logging.getLogger("chaos_mm.agent")
_KINDS: Final = 64
"""Kinds of mishaps that are logged; more are counted alone."""


class Mishaps:
    """One per engine, for every thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.count = 0
        """How many there were since the start."""
        self._runtime = runtime
        self._said: set[str] = set()
        self._told: weakref.WeakSet[Armed] = weakref.WeakSet()
        self._lock = threading.Lock()

    def door(self, what: str, *seams: Seam) -> "Door":
        """Something to do ``with`` around; ``seams``: whose leases may miss their strikes when it fails."""
        return Door(self, what, seams)

    def met(self, what: str, seams: tuple[Seam, ...], error: Exception) -> None:
        """Take note of one; never raises."""
        *_, (frame, line) = walk_tb(error.__traceback__)
        place = f"{Path(frame.f_code.co_filename).name}:{line}"
        text = f"the agent failed at {what}: {type(error).__name__} in {place}"
        with self._lock:
            self.count += 1
            new = text not in self._said and len(self._said) < _KINDS
            self._said |= {text} if new else set()
        if new:
            logger.error("%s; the request goes on", text)
        with contextlib.suppress(Exception):  # what broke may be the leases themselves: it is counted and said by now
            for armed in (armed for seam in seams for armed in self._runtime.leases(seam)):
                self._tell(armed, text)

    def _tell(self, armed: Armed, text: str) -> None:
        with self._lock:
            new = armed not in self._told
            self._told.add(armed)
        if new:
            armed.book(Column.ERRORED)
            armed.ledger.note("error", text[:200])


class Door:
    """A context that lets out what was meant to leave, and nothing else that is an ``Exception``."""

    def __init__(self, mishaps: Mishaps, what: str, seams: tuple[Seam, ...]) -> None:
        """``what`` is done there, in words."""
        self._mishaps, self._what, self._seams = mishaps, what, seams

    def __enter__(self) -> None:
        """Nothing: one door may be entered by many threads, and again within itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or is_meant(error):
            return False
        self._mishaps.met(self._what, self._seams, error)
        return True

    def met(self, error: Exception) -> None:
        """For a place too hot for a context: raises again what was meant to leave, takes note of anything else."""
        if is_meant(error):
            raise error
        self._mishaps.met(self._what, self._seams, error)
