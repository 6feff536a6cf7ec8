"""Hears the hit of a fault that ends its engine: the proof lives in the engine, and goes with it.

The agent counts a strike before anything breaks, and its control process tells of it for as long as the server takes to
end: some tenths of a second. Samples, one a second, would mostly miss that.
"""

import threading

from chaos_mm.controls.names import open_client
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.signals import deaf
from chaos_mm.core.errors import ChaosMMError, UnknownLease

__all__ = ["Witness", "witness"]

_PERIOD_SECONDS = 0.1
_ANSWER_SECONDS = 1.0


class Witness(threading.Thread):
    """Asks one point ten times a second for a lease, and keeps what it says, until somebody gives the lease up, the run
    is closed, or another process answers there, which knows nothing of it.
    """

    def __init__(self, run: Run, lease: HeldLease, url: str) -> None:
        super().__init__(name=f"chaos-mm-witness-{lease.name}", daemon=True)
        self._watched_run, self._lease, self._url = run, lease, url

    def run(self) -> None:
        """The loop."""
        deaf()
        while not self._lease.given_up.wait(_PERIOD_SECONDS) and not self._watched_run.closed.is_set():
            if not self._look():
                return

    def _look(self) -> bool:
        """Whether it is worth asking again."""
        run, lease = self._watched_run, self._lease
        try:
            lease.learn({self._url: open_client(self._url, run.secrets, _ANSWER_SECONDS).lease(lease.name, run.id)})
        except UnknownLease:
            return False
        except ChaosMMError:
            return True  # it ends, or starts; a busy one gets another chance
        return True


def witness(run: Run, lease: HeldLease) -> None:
    """Watch the lease at each of its points."""
    for url in lease.urls:
        Witness(run, lease, url).start()
