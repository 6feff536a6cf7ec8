"""What a signal does to a run: the leases are released at once by the guard, and the engine stops where it safely can.

Chaos Toolkit's own handler for SIGTERM raises an exception that lib 1.44 swallows inside a Python activity, and an
exit raised while rollbacks run would cancel the remaining ones. So ours look where the engine is. The names below are
private to chaoslib; a test asserts that they exist.

What is raised in a handler may leave a lock behind that the interrupted code had just taken: after a log line cut short
every other thread would wait for ever at its next one (seen: a run that never ended). Inside logging and imports
nothing is raised; the guard nudges a moment later instead.

Of two signals in one millisecond the kernel may hand both to another thread, and the main one sleeps on: its handler
runs when it wakes by itself (seen: two signals in a wait of 20 s, in most of the trials). So a thread hears of every
signal as well, sets the stop flag, and the guard releases and nudges.
"""

import logging
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from chaos_mm.controls.run import Run

__all__ = ["BETWEEN", "Signals", "deaf", "interrupt_main", "place"]

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


def deaf() -> None:
    """For a thread of ours: what is sent to the process goes to the main thread, and wakes it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


class Signals:
    """The handlers of one run; signals that the process was started to ignore (nohup) stay ignored."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: dict[int, Any] = {}
        self._ears: tuple[int, int] | None = None  # where the interpreter writes a signal's number, and what was before
        self._heard: list[int] = []
        self.received: list[int] = []

    def install(self) -> None:
        """Take over. Only the main thread may; elsewhere the run keeps the toolkit's handlers."""
        if threading.current_thread() is not threading.main_thread():
            logger.warning("chaos_mm: not in the main thread: signals are left to Chaos Toolkit")
            return
        for number in _HANDLED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.on_signal)
        read, write = os.pipe()
        os.set_blocking(write, False)
        self._ears = write, signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(read,), name="chaos-mm-signals", daemon=True).start()

    def restore(self, leaving: bool = False) -> None:
        """Put back what was there. ``leaving``: the command is over but for its journal and its exit status: a signal
        could only take that status away, so from here on none but SIGKILL does anything."""
        if self._before and leaving and threading.current_thread() is threading.main_thread():
            # The toolkit puts back its own handlers in a moment; a mask it leaves alone.
            signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        if self._ears is not None and threading.current_thread() is threading.main_thread():
            (write, before), self._ears = self._ears, None
            found = signal.set_wakeup_fd(before)
            if found != write:
                signal.set_wakeup_fd(found)  # somebody else's by now
            os.close(write)
        while self._before and threading.current_thread() is threading.main_thread():
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Wake the guard, then leave if the engine can bear it here. Takes no lock."""
        run, where = self._run, place(frame)
        nudged = run.nudged and number == signal.SIGUSR1
        if nudged:
            run.nudged = False
        first = not self.received
        if not nudged:
            self._note(number, where)
        run.stop.set()
        if where == "activity" or (where == "between" and (first or nudged)):
            raise SystemExit(self.exit_code)

    def ignore(self) -> None:
        """The command leaves with the verdict's status, whatever is sent meanwhile; the toolkit put its own handlers
        back before."""
        for number in _HANDLED if threading.current_thread() is threading.main_thread() else ():
            signal.signal(number, signal.SIG_IGN)

    def _listen(self, read: int) -> None:
        deaf()
        with open(read, "rb", buffering=0) as numbers:
            while found := numbers.read(64):
                heard = [number for number in found if number in self._before]
                self._heard += heard
                if heard:
                    self._run.stop.set()

    def _note(self, number: int, where: str) -> None:
        name = signal.Signals(number).name
        self.received.append(number)
        self._run.note("interrupted", f"received {name}")
        self._run.events.write("signal", name=name, place=where)

    @property
    def names(self) -> list[str]:
        """Of the signals that others sent, in order: SIGTERM and so on."""
        return [signal.Signals(number).name for number in self.received]

    @property
    def exit_code(self) -> int:
        """What the engine understands: 20 is "stop, with rollbacks", 30 "stop without"."""
        return 30 if [*self.received, *self._heard][:1] == [signal.SIGUSR2] else 20

    def nudge(self) -> None:
        """From the guard, while the run is to stop and its rollbacks have not begun: the first signal may have come
        where nothing could be raised, or the engine may be asleep in a pause or wait for a background activity."""
        main = threading.main_thread().ident
        if self._before and main is not None and not self._run.unwinding.is_set():
            self._run.nudged = True
            signal.pthread_kill(main, signal.SIGUSR1)


def interrupt_main(run: Run | None = None) -> None:
    """From another thread: stop the experiment as the toolkit's ``exit_gracefully`` does, with rollbacks.

    For what nobody watches: no run, or one whose guard is dead. A watched run is stopped by ``Run.request_stop``.
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
        if run is not None:
            run.nudged = True
        signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        sys.setswitchinterval(interval)
