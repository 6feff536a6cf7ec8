"""The agent's actuator: it puts the book's leases on the board and brings back what the engine's processes did.

The book's lock is held by whoever calls ``begin``, ``renew`` or ``finish``: these write words and nothing more. What
takes time (proving a seam, draining, the adapter's own undo) runs in threads of this module.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos_mm.agent.adapter import Adapter
from chaos_mm.agent.board import Board, WorkerSlot
from chaos_mm.agent.layout import LEASES, SEAMS, WorkerWord
from chaos_mm.agent.proofs import Proofs
from chaos_mm.agent.shadow import Shadow
from chaos_mm.core.errors import ChaosMMError, InvalidParams
from chaos_mm.core.fault import Fault, Seam
from chaos_mm.core.lease import Lease, Undo

__all__ = ["Mirror"]

logger = logging.getLogger("chaos_mm.agent")
_DRAIN_SECONDS: Final = 0.05
_PROBE_NS: Final = 1_000_000_000
"""How long a probe outlives this process."""
_PROOF_SECONDS: Final = 0.6
"""What a lease waits for the first proof of its seam; the run that asks for it waits 0.9 s for its answer in all."""
_ALLOWED_TERMS: Final = "'canary', 'live' and 'modality:image' (audio, video, text)"


class Mirror:
    """Actuator of ``LeaseBook`` for an engine. One per board."""

    def __init__(self, adapter: Adapter, board: Board, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """``start`` begins to drain; ``clock`` is that of the board's deadlines."""
        self.adapter, self.board, self.proofs = adapter, board, Proofs(adapter, self)
        self._clock = clock
        self._serial = 0
        self._probing = False
        self._shadows: dict[int, Shadow] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-mm-mirror", daemon=True)

    def start(self) -> None:
        """Disarm whatever an earlier control process left, begin to drain the rings and to prove the seams."""
        with self._lock:
            self._serial = max(self.board.serial(slot) for slot in range(LEASES))
            for slot in range(LEASES):
                if self.board.deadline(slot) and slot not in self._shadows:
                    self.board.withdraw(slot)
        self._thread.start()
        self.proofs.start()

    def close(self) -> None:
        """Take every lease off the board and stop."""
        with self._lock:
            for slot in list(self._shadows):
                self.board.withdraw(slot)
        self._closed.set()
        self.proofs.close()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def workers(self) -> list[WorkerSlot]:
        """Processes of the engine that are alive."""
        return [worker for worker in self.board.workers() if worker.alive]

    def probe(self, on: bool) -> None:
        """Let the seams count their passes with nothing armed, or no longer; ``drain`` keeps it up."""
        with self._lock:
            self._probing = on
            self.board.probe(self._clock() + _PROBE_NS if on else 0)

    def passes(self, seam: Seam) -> int:
        """How often living processes passed that seam while the page was armed."""
        return sum(worker.get(WorkerWord.FIRED + SEAMS.index(seam)) for worker in self.workers())

    # -- Actuator

    def refusal(self, fault: Fault) -> str:
        """Why the fault cannot be injected now, and what to do."""
        return self._impossible(fault) or ("" if fault.seam is None else self.proofs.refusal(fault.seam))

    def pending(self, fault: Fault) -> bool:
        """Whether nothing speaks against it but that its seam's first proof has no end yet."""
        return fault.seam is not None and not self._impossible(fault) and self.proofs.reason(fault.seam) is None

    def settle(self, fault: Fault) -> None:
        """Wait for that proof, ``_PROOF_SECONDS`` at most. Not under the book's lock."""
        if fault.seam is not None and self.pending(fault):
            self.proofs.wait(fault.seam, _PROOF_SECONDS)

    def _impossible(self, fault: Fault) -> str:
        """What speaks against it beside proofs."""
        adapter, seam = self.adapter, fault.seam
        if seam is None or seam not in adapter.seams:
            has = ", ".join(sorted(adapter.seams)) or "none"
            missing = f"{adapter.name} {adapter.version} has no seam {seam or 'for it'} here; it has: {has}"
            return adapter.refusal(fault) or missing
        if not self.board.in_place:
            return f"the board {self.board.path} is gone or was replaced; restart the engine"
        if not self.workers():
            return "no process of the engine has joined the board; is the agent enabled (CHAOS_MM_AGENT=1) there?"
        if not any(seam in worker.seams for worker in self.workers()):
            return f"no living process of the engine has the seam {seam}; restart the engine"
        return adapter.refusal(fault)

    def selectable(self, fault: Fault) -> bool:
        """As the adapter says."""
        return self.adapter.selectable(fault)

    def describe(self, fault: Fault) -> Mapping[str, Any]:
        """What ``GET /faults`` and every lease's ``engine`` say of the engine."""
        adapter = self.adapter
        return {
            "engine": {"name": adapter.name, "version": adapter.version, **adapter.facts},
            "fatal": adapter.fatal.get(fault.effect, ""),
            "batch_wide": fault.seam in adapter.batch_wide,
            "undo_by": adapter.undo_note(fault),
        }

    def begin(self, lease: Lease) -> None:
        """Publish it. Raises InvalidParams for a selector no engine can see, ChaosMMError without a free slot."""
        self._check_terms(lease)
        self.adapter.check(lease.fault, lease.spec.params)
        with self._lock:
            free = [slot for slot in range(LEASES) if slot not in self._shadows]
            if not free:
                raise ChaosMMError(f"{LEASES} leases live or are not yet undone in this engine; release one first")
            self._serial += 1
            lease.engine.update(self.describe(lease.fault))
            shadow = Shadow(lease, free[0], self._serial, self.board, self.adapter)
            self.board.publish(free[0], self._serial, _spec(lease), self._deadline(lease))
            self._shadows[free[0]] = shadow

    def renew(self, lease: Lease) -> None:
        """Push its deadline on the board."""
        with self._lock:
            shadow = self._of(lease)
            if shadow is not None and not lease.ended_by:
                self.board.extend(shadow.slot, self._deadline(lease))

    def finish(self, lease: Lease) -> None:
        """Disarm it at once; the undo is then pending until every process has said that it is done."""
        with self._lock:
            shadow = self._of(lease)
            if shadow is None or shadow.ended_at_generation:
                return
            lease.undo = Undo(pending=True)
            shadow.ended_at_generation = self.board.withdraw(shadow.slot)

    # -- inside

    def _of(self, lease: Lease) -> Shadow | None:
        return next((shadow for shadow in self._shadows.values() if shadow.lease is lease), None)

    def _deadline(self, lease: Lease) -> int:
        return int(lease.deadline() * 1e9)

    def _check_terms(self, lease: Lease) -> None:
        for key, value in lease.spec.radius.selector.terms:
            if key != "modality":
                raise InvalidParams(
                    f"{lease.fault.name}: selector {key}:{value[:40]!r} cannot be seen inside an engine; "
                    f"{_ALLOWED_TERMS} can"
                )

    def _run(self) -> None:
        while not self._closed.wait(_DRAIN_SECONDS):
            try:
                self.drain()
            except Exception:  # evidence must go on coming
                logger.exception("the agent's mirror met an error")

    def drain(self) -> None:
        """Read the rings and counters into the leases, and let ended ones go that are undone."""
        with self._lock:
            if self._probing:
                self.probe(True)
            shadows = {shadow.serial: shadow for shadow in self._shadows.values()}
            done = [shadow for shadow in shadows.values() if shadow.settled()]
            for worker in self.board.workers():
                for record in worker.pull():
                    shadow = shadows.get(record.get("s", 0))
                    if shadow is not None:
                        shadow.take(record)
            for shadow in shadows.values():
                shadow.count()
            for shadow in done:
                shadow.conclude()
                if shadow.concluded:
                    del self._shadows[shadow.slot]


def _spec(lease: Lease) -> dict[str, Any]:
    spec = lease.spec
    return {
        "name": lease.name,
        "fault": lease.fault.name,
        "params": dict(spec.params),
        "seed": spec.seed,
        "radius": spec.radius.to_json(),
        "mode": spec.mode,
        "owner": spec.owner,
    }
