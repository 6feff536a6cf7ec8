"""A hold fault at work in a process of the engine: begun once, ended once, in the thread that its seam allows."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.layout import Column
from chaos_mm.agent.ledger import finite

__all__ = ["Holding"]

logger = logging.getLogger("chaos_mm.agent")
_LOOK_SECONDS: Final = 0.02


class Holding:
    """Runs ``fault(value, rng, **params)``: to its ``yield`` at the beginning, and from there on at the end.

    What the generator returns at its end (a mapping of figures) stands in the lease's undo.
    """

    def __init__(self, armed: Armed, value: Any) -> None:
        """``value``: what the seam hands to the fault."""
        self._armed = armed
        self._run: Any = armed.fault.apply(value, armed.rng("", "hold"), **armed.params)
        self._thread: threading.Thread | None = None
        self._begun = self._ended = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Run it up to its ``yield``; what it raises counts as ``errored``."""
        armed = self._armed
        armed.mark(Column.STRUCK)
        try:
            figures = next(self._run)
        except StopIteration:
            self._failed("it did not yield")
        except Exception as error:  # whatever a fault raises must not become the engine's own error
            self._failed(f"{type(error).__name__}: {error}")
            if error.__context__ is not None and not error.__suppress_context__:  # its ``finally`` raised, too
                armed.fail(f"{type(error).__name__}: {error}")
        else:
            self._begun = True
            armed.struck_hold(figures or {}, str(armed.seam))

    def start(self) -> None:
        """Run it in a thread of its own, until the lease ends."""
        self._thread = threading.Thread(target=self._own, name="chaos-mm-hold", daemon=True)
        self._thread.start()

    def end(self) -> bool:
        """Undo it; False while its own thread is still at that."""
        own = self._thread
        if own is not None and own is not threading.current_thread() and own.is_alive():
            return False
        self._finish()  # also where its own thread has died of what the fault did: no memory was left to it
        return True

    def _own(self) -> None:
        self.begin()
        while self._begun and self._armed.live:
            self._armed.wait(_LOOK_SECONDS)
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        if not self._begun:
            return
        try:
            next(self._run)
        except StopIteration as stop:
            if isinstance(stop.value, Mapping):
                self._armed.ledger.note("undone", finite(stop.value))
        except Exception as error:  # reported as what it is: an undo that is not proven
            self._armed.fail(f"{type(error).__name__}: {error}")
            logger.error("the undo of %s failed: %s", self._armed.fault.name, type(error).__name__)
        else:
            self._run.close()
            self._armed.fail("the fault yields more than once")

    def _failed(self, reason: str) -> None:
        self._armed.book(Column.ERRORED)
        self._armed.ledger.note("error", reason[:200])
        logger.error("%s failed: %s", self._armed.fault.name, reason.partition(":")[0])
