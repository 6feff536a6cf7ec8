"""The open connections of a control API, so that silent or slow ones can never keep an operator from releasing.

A request has a few seconds from its first byte to its last; when too many connections stand open, the oldest that has
not shown the token makes room.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MAX_CONNECTIONS", "REQUEST_SECONDS", "Connections"]

REQUEST_SECONDS = 5.0
MAX_CONNECTIONS = 64


@dataclass
class _Standing:
    since: float
    trusted: bool = False
    answering: bool = False


class Connections:
    """Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[socket.socket, _Standing] = {}
        self._lock = threading.Lock()

    def admit(self, connection: socket.socket) -> None:
        """A new one; above the limit the oldest without the token is closed, else the oldest."""
        with self._lock:
            self._open[connection] = _Standing(self._clock())
            if len(self._open) > MAX_CONNECTIONS:
                others = [one for one in self._open if one is not connection]
                _close(min(others, key=lambda one: (self._open[one].trusted, self._open[one].since)))

    def answering(self, connection: socket.socket, trusted: bool) -> None:
        """Its request has been read whole."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = _Standing(self._clock(), trusted, answering=True)

    def answered(self, connection: socket.socket) -> None:
        """It waits for its next request."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = _Standing(self._clock(), self._open[connection].trusted)

    def leave(self, connection: socket.socket) -> None:
        """It is closed."""
        with self._lock:
            self._open.pop(connection, None)

    def reap(self) -> None:
        """Close those whose request did not come in time; a timer calls it."""
        with self._lock:
            late = self._clock() - REQUEST_SECONDS
            for connection, standing in self._open.items():
                if not standing.answering and standing.since < late:
                    _close(connection)


def _close(connection: socket.socket) -> None:
    # The plain method, since one under TLS would wait for its peer; the thread that reads from it wakes and ends.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
