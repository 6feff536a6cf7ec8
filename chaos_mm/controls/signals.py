"""What a signal does to a run: the leases are released at once by the guard, and the engine stops where it safely can.

Chaos Toolkit's own handler for SIGTERM raises an exception that lib 1.44 swallows inside a Python activity, and an
exit raised while rollbacks run would cancel the remaining ones. So ours look where the engine is. The names below are
private to chaoslib; a test asserts that they exist.

What is raised in a handler may leave a lock behind that the interrupted code had just taken: after a log line cut short
every other thread would wait for ever at its next one (seen: a run that never ended). Inside logging and imports
nothing is raised; the guard nudges a moment later instead.
"""

import logging
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from chaos_mm.controls.run import Run

__all__ = ["BETWEEN", "Signals", "interrupt_main", "place"]

logger = logging.getLogger("chaostoolkit")
BETWEEN = frozenset({"run_gate_hypothesis", "run_method", "run_deviation_validation_hypothesis", "begin"})
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LOCKED_CODE = (logging.__file__, "<frozen importlib._bootstrap>")
_ALONE_SECONDS = 1.0
_TRY_SECONDS = 0.001
_TRIES = 2000


def place(frame: FrameType | None) -> str:
    """Where the main thread is.

    ``rollback``: never raise. ``locked``: not now. ``activity``: always safe. ``between`` activities: once.
    ``outside`` the engine: somebody will look at the stop flag.
    """
    names, locked = set(), False
    while frame is not None:
        filename = frame.f_code.co_filename
        locked = locked or filename in _LOCKED_CODE
        if "chaoslib" in filename:
            names.add(frame.f_code.co_name)
        frame = frame.f_back
    if "run_rollback" in names:
        return "rollback"
    if locked:
        return "locked"
    if "execute_activity" in names:
        return "activity"
    return "between" if names & BETWEEN else "outside"


class Signals:
    """The handlers of one run; signals that the process was started to ignore (nohup) stay ignored."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: dict[int, Any] = {}
        self._nudging = False
        self.received: list[int] = []

    def install(self) -> None:
        """Take over. Only the main thread may; elsewhere the run keeps the toolkit's handlers."""
        if threading.current_thread() is not threading.main_thread():
            logger.warning("chaos_mm: not in the main thread: signals are left to Chaos Toolkit")
            return
        for number in _HANDLED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.on_signal)

    def restore(self) -> None:
        """Put back what was there."""
        while self._before and threading.current_thread() is threading.main_thread():
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Wake the guard, then leave if the engine can bear it here. Takes no lock."""
        nudged, self._nudging = self._nudging and number == signal.SIGUSR1, False
        first = not self.received
        if not nudged:
            self.received.append(number)
        self._run.stop.set()
        where = place(frame)
        if where == "activity" or (where == "between" and (first or nudged)):
            raise SystemExit(self.exit_code)

    @property
    def exit_code(self) -> int:
        """What the engine understands: 20 is "stop, with rollbacks", 30 "stop without"."""
        return 30 if self.received[:1] == [signal.SIGUSR2] else 20

    def nudge(self) -> None:
        """From the guard, while the run is to stop and its rollbacks have not begun: the first signal may have come
        where nothing could be raised, or the engine may be asleep in a pause or wait for a background activity."""
        main = threading.main_thread().ident
        if self._before and main is not None and not self._run.unwinding.is_set():
            self._nudging = True
            signal.pthread_kill(main, signal.SIGUSR1)


def interrupt_main() -> None:
    """From another thread: stop the experiment as the toolkit's ``exit_gracefully`` does, with rollbacks.

    The toolkit's own handler raises wherever the main thread is, so the signal is sent while it is at no place where
    that would leave a lock behind; the interpreter is kept to this thread from the look to the signal.
    """
    main = threading.main_thread().ident or 0
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_ALONE_SECONDS)
    try:
        for _ in range(_TRIES):
            time.sleep(_TRY_SECONDS)  # lets the others run
            if place(sys._current_frames().get(main)) != "locked":
                break
        signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        sys.setswitchinterval(interval)
