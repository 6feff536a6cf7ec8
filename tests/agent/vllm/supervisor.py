"""Stands in for what watches over a server where it is in use: systemd with ``Restart=always``, a Deployment.

It knows nothing of faults. A server whose process has ended, with whatever status (vLLM 0.32 ends with 0 when its
engine has died), is started again with the same command at the same addresses, so many times and no more; what the
dead one left behind is killed first, as a control group is.
"""

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.agent.vllm.server import Server

__all__ = ["Death", "Supervisor"]

_LOOK_SECONDS = 0.1
_LEFT_SECONDS = 5.0  # what the dead process's children get to end by themselves


@dataclass(frozen=True)
class Death:
    """The exit status (negative: the signal), and when it was seen, monotonic seconds."""

    status: int
    at: float


class Supervisor(threading.Thread):
    """Watches over ``server`` within a ``with`` block. ``deaths``: what it saw, the last one included that it let be.

    ``restarts``: how often it starts the server again at most; 0 only watches.
    """

    def __init__(self, server: Server, restarts: int = 1) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.server, self.restarts = server, restarts
        self.deaths: list[Death] = []
        self.error: Exception | None = None
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._done.set()
        self.join(60)
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Look ten times a second; the loop ends with the death that is one too many."""
        try:
            while not self._done.wait(_LOOK_SECONDS):
                status = self.server.process.poll()
                if status is None:
                    continue
                self.deaths.append(Death(status, time.monotonic()))
                self.server.sweep(_LEFT_SECONDS)
                if len(self.deaths) > self.restarts:
                    return
                self.server.launch()
        except Exception as error:  # it must not be lost with the thread
            self.error = error
