"""Signals to the runner: the first is handed to the child, which releases its faults; a second one means business."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from chaos_mm.runner.child import Child

__all__ = ["GRACE_SECONDS", "Relay"]

GRACE_SECONDS = 5.0
# Chaos Toolkit knows no SIGHUP: a foreign child would die of it without its rollbacks.
_SENT = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}


class Relay:
    """Within it SIGINT, SIGTERM and SIGHUP stop the list: ``received`` holds them in order. What this process was
    started to ignore stays ignored. After a second one the child has ``GRACE_SECONDS`` left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.received: list[int] = []
        self.child: Child | None = None
        self._clock, self._kill_at = clock, float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SENT:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self.on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    @property
    def stopping(self) -> bool:
        """Whether the list is to stop."""
        return bool(self.received)

    @property
    def overdue(self) -> bool:
        """Whether the child has had its time."""
        return self._clock() >= self._kill_at

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Hand the first on; a second one starts the clock."""
        self.received.append(number)
        if len(self.received) == 1:
            self.tell()
        else:
            self._kill_at = min(self._kill_at, self._clock() + GRACE_SECONDS)

    def watch(self, child: Child | None) -> None:
        """This child is the one to tell; at once where a signal came while it was being started."""
        self.child = child
        if self.stopping:
            self.tell()

    def tell(self) -> None:
        """Send the child what was received first."""
        if self.child is not None:
            self.child.send(_SENT[signal.Signals(self.received[0])])
