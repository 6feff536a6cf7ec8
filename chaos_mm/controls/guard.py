"""The thread that watches over a run: heartbeat, keepalives, and release at once when the run is stopped.

Nothing here writes to a disk: a stalled fsync would let keepalives lapse and end good runs.
"""

import importlib
import logging
import threading
from collections.abc import Callable

from chaos_mm.controls.names import open_client
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.signals import interrupt_main
from chaos_mm.core.errors import ChaosMMError, UnknownLease

__all__ = ["Guard", "Renewal", "renew_lease"]

logger = logging.getLogger("chaostoolkit")
_BEAT_SECONDS = 0.5
_NUDGE_SECONDS = 0.3


class Guard(threading.Thread):
    """Beats twice a second until the run is closed; wakes at once when it is stopped.

    ``nudge`` is called while a stopped run has not begun to unwind.
    """

    def __init__(self, run: Run, nudge: Callable[[], None]) -> None:
        super().__init__(name=f"chaos-mm-guard-{run.id}", daemon=True)
        # Imported by now, so that this thread never waits for an import that a signal cut short.
        importlib.import_module("chaos_mm.control.client")
        self.watched_run, self._nudge = run, nudge
        run.beat = run.clock()

    def run(self) -> None:
        """The loop."""
        run = self.watched_run
        while not run.closed.is_set():
            run.beat = run.clock()
            if run.stop.wait(_BEAT_SECONDS):
                # Again on every beat: a lease asked for while the signal came may have arrived only now.
                self._release_all()
                if not run.unwinding.wait(_NUDGE_SECONDS):
                    self._nudge()
                run.closed.wait(_NUDGE_SECONDS)

    def _release_all(self) -> None:
        try:
            troubles = self.watched_run.release_all()
        except Exception as error:  # whatever it is, this thread must live to try again
            troubles = [f"{type(error).__name__}: {error}"]
        for trouble in troubles:
            logger.warning(f"chaos_mm: not released yet: {trouble}")


class Renewal(threading.Thread):
    """Says every fifth of ``keepalive_seconds`` that the run lives, as long as its guard does and nobody stops it.

    ``say`` is called with a timeout of a third of the keepalive; it raises ChaosMMError.
    """

    def __init__(
        self, run: Run, keepalive_seconds: float, done: threading.Event, say: Callable[[float], object], what: str
    ) -> None:
        super().__init__(name=f"chaos-mm-keepalive-{what}", daemon=True)
        self._watched_run, self._done, self._say, self._what = run, done, say, what
        self._period, self._timeout = keepalive_seconds / 5, keepalive_seconds / 3

    def run(self) -> None:
        """The loop."""
        run = self._watched_run
        while not self._done.wait(self._period) and run.watched and not run.stop.is_set():
            try:
                self._say(self._timeout)
            except UnknownLease:
                logger.warning(f"chaos_mm: {self._what} has ended before its release")
                return
            except ChaosMMError as error:
                logger.warning(f"chaos_mm: keepalive of {self._what}: {error}")


def _stop_if_stopped(ended_by: object, name: str) -> None:
    if ended_by == "stop":  # by hand, from elsewhere: whoever did it wants this run to end, not to measure on
        logger.error(f"chaos_mm: lease {name!r} was ended by 'chaos-mm stop', so this run stops")
        interrupt_main()


def renew_lease(run: Run, lease: HeldLease) -> None:
    """Keep a lease alive at each of its URLs, each in a thread of its own: a slow point must not starve another."""
    for url in lease.urls:

        def say(timeout: float, url: str = url) -> None:
            client = open_client(url, run.secrets, timeout)
            try:
                client.keepalive(lease.name, run.id)
            except UnknownLease:
                _stop_if_stopped(client.lease(lease.name, run.id).get("ended_by"), lease.name)
                raise

        Renewal(run, lease.keepalive_seconds, lease.given_up, say, f"lease {lease.name!r} at {url}").start()
