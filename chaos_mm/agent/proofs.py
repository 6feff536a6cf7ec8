"""Whether each seam was seen to be passed: an agent that arms one which never fires does harm to no one."""

import logging
import threading
import time
from typing import Final, Protocol

from chaos_mm.agent.adapter import Adapter
from chaos_mm.core.fault import Seam

__all__ = ["Passes", "Proofs"]

logger = logging.getLogger("chaos_mm.agent")
_AGAIN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_WAITING: Final = "its seam {} is just being proven by the agent's own canary; ask again in a few seconds"


class Passes(Protocol):
    """Counts passes of seams, as ``Mirror`` does."""

    def probe(self, on: bool) -> None:
        """Count from now on, or no longer."""

    def passes(self, seam: Seam) -> int:
        """How many there were."""


class Proofs:
    """Asks the adapter to prove each seam, one after the other, in a thread; failed ones again when somebody asks."""

    def __init__(self, adapter: Adapter, passes: Passes) -> None:
        """Nothing is asked before ``start``."""
        self._adapter, self._passes = adapter, passes
        self._reasons: dict[Seam, str] = {}
        self._tried_at, self._loads = float("-inf"), adapter.loads
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._thread: threading.Thread | None = None
        self._wanted: Seam | None = None
        self._closed = False

    def start(self) -> None:
        """Prove what is not proven yet, in a thread; what was tried, at most every 5 s."""
        known = self._known()
        untried = any(seam not in known for seam in self._adapter.seams)
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if self._closed or busy or (not untried and time.monotonic() - self._tried_at < _AGAIN_SECONDS):
                return
            self._thread = threading.Thread(target=self._run, name="chaos-mm-proofs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Prove nothing any more; what is in hand is waited for, half a second at most."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.join(0.5)

    def reason(self, seam: Seam) -> str | None:
        """Empty when proven, why not, or None while nobody knows."""
        return self._known().get(seam)

    def wait(self, seam: Seam, seconds: float) -> None:
        """Until its first proof has an end, whatever that is, at most so long; somebody waiting, it is the next."""
        ends, self._wanted = time.monotonic() + seconds, seam
        while self.reason(seam) is None and (left := ends - time.monotonic()) > 0:
            self.start()
            with self._news:
                self._news.wait(min(left, _LOOK_SECONDS))

    def refusal(self, seam: Seam) -> str:
        """Why a fault of that seam must wait or cannot be; asking starts another try."""
        reason = self._known().get(seam)
        if reason == "":
            return ""
        self.start()
        if reason is None:
            return _WAITING.format(seam)
        return f"its seam {seam} would not take hold: {reason}"

    def _known(self) -> dict[Seam, str]:
        """What is known of the model that is served now."""
        with self._lock:
            loads = self._adapter.loads
            if loads != self._loads:
                self._loads, self._reasons, self._tried_at = loads, {}, float("-inf")
            return self._reasons

    def _run(self) -> None:
        known, tried = self._known(), set[Seam]()
        while not self._closed:
            due = [seam for seam in self._adapter.seams if known.get(seam) != "" and seam not in tried]
            if not due:
                break
            seam = self._wanted if self._wanted in due else min(due)
            tried.add(seam)
            known[seam] = self._prove(seam)
            with self._news:
                self._news.notify_all()
            if known is not self._known():  # another model came meanwhile, of which nothing is known yet
                known, tried = self._known(), set()
        self._tried_at = time.monotonic()

    def _prove(self, seam: Seam) -> str:
        before = self._passes.passes(seam)
        self._passes.probe(True)
        try:
            reason = self._adapter.prove(seam)
        except Exception as error:  # an adapter's canary may fail in any way; the seam is then not proven
            reason = f"its canary failed: {type(error).__name__}: {error}"
        finally:
            self._passes.probe(False)
        if not reason and seam in self._adapter.passed and self._passes.passes(seam) == before:
            reason = "the agent's own canary was answered without passing it (is it compiled or replayed away?)"
        if reason:
            logger.error("seam %s is not proven: %s", seam, reason)
        return reason
