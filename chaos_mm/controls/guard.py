"""The thread that watches over a run: heartbeat, keepalives, and release at once when the run is stopped.

Nothing here writes to a disk: a stalled fsync would let keepalives lapse and end good runs.
"""

import importlib
import logging
import os
import threading
from collections.abc import Callable

from chaos_mm.controls.names import open_client
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.signals import deaf
from chaos_mm.core.errors import ChaosMMError, UnknownLease

__all__ = ["Guard", "Renewal", "renew_lease"]

logger = logging.getLogger("chaostoolkit")
_BEAT_SECONDS = 0.5
_NUDGE_SECONDS = 0.3


class Guard(threading.Thread):
    """Beats twice a second until the run is closed; wakes at once when it is stopped.

    ``nudge`` is called while a stopped run has not begun to unwind. ``runner``: the process that started this one to
    play it, 0 for a run started by hand; when it is gone nobody waits for this run any more, so it ends.
    """

    def __init__(
        self, run: Run, nudge: Callable[[], None], runner: int = 0, parent: Callable[[], int] = os.getppid
    ) -> None:
        super().__init__(name=f"chaos-mm-guard-{run.id}", daemon=True)
        self._runner, self._parent = runner, parent
        # Imported by now, so that this thread never waits for an import that a signal cut short.
        importlib.import_module("chaos_mm.control.client")
        self.watched_run, self._nudge = run, nudge
        run.beat = run.clock()

    def run(self) -> None:
        """The loop."""
        deaf()
        run = self.watched_run
        while not run.closed.is_set():
            run.beat = run.clock()
            if self._runner and self._parent() != self._runner:
                run.request_stop("interrupted", f"its runner, process {self._runner}, is gone")
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
        deaf()
        run, silent = self._watched_run, False
        while not self._done.wait(self._period) and run.watched and not run.stop.is_set():
            try:
                self._say(self._timeout)
                silent = False
            except UnknownLease:
                if not run.stop.is_set():  # else the stop released it while we asked
                    logger.warning(f"chaos_mm: {self._what} has ended before its release")
                return
            except ChaosMMError as error:  # said once an outage: an engine that must be restarted takes minutes
                logger.log(
                    logging.DEBUG if silent else logging.WARNING, f"chaos_mm: keepalive of {self._what}: {error}"
                )
                silent = True


def _stop_if_stopped(run: Run, ended_by: object, name: str) -> None:
    if ended_by == "stop":  # by hand, from elsewhere: whoever did it wants this run to end, not to measure on
        why = f"the lease {name!r} was ended by 'chaos-mm stop'"
        logger.error(f"chaos_mm: {why}, so this run stops")
        run.request_stop("interrupted", why)


def renew_lease(run: Run, lease: HeldLease) -> None:
    """Keep a lease alive at each of its URLs, each in a thread of its own: a slow point must not starve another."""
    for url in lease.urls:

        def say(timeout: float, url: str = url) -> None:
            client = open_client(url, run.secrets, timeout)
            try:
                client.keepalive(lease.name, run.id)
            except UnknownLease:
                _stop_if_stopped(run, client.lease(lease.name, run.id).get("ended_by"), lease.name)
                raise

        Renewal(run, lease.keepalive_seconds, lease.given_up, say, f"lease {lease.name!r} at {url}").start()
