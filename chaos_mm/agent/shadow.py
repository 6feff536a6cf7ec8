"""One lease on the board, followed until every process has undone it."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from chaos_mm.agent.adapter import Adapter, NotYet
from chaos_mm.agent.board import Board, WorkerSlot
from chaos_mm.agent.identity import Identity
from chaos_mm.agent.layout import SEAMS, Column, WorkerWord
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Seam
from chaos_mm.core.lease import Lease, Tally, Undo

__all__ = ["Shadow"]

logger = logging.getLogger("chaos_mm.agent")
_COUNTS: Final = {"matched": Column.MATCHED, "applied": Column.APPLIED, "errored": Column.ERRORED}
_UNDO_FIGURES: Final = {
    "restored_elements": Column.RESTORED,
    "skipped_elements": Column.SKIPPED,
    "invalidated_blocks": Column.INVALIDATED,
    "saved_bytes": Column.SAVED,
}
_EVERY_STEP: Final = frozenset((Seam.KV, Seam.ATTENTION))
_NOT_FIRING: Final = 8
_NOTES: Final = 4096
_RETRY_SECONDS: Final = 0.5
_GIVE_UP_SECONDS: Final = 60.0
_NAMES: Final = 512
_SOON_SECONDS: Final = 0.3


class Shadow:
    """Brings counters, figures and the state of the undo from the workers' columns and records into the lease."""

    def __init__(self, lease: Lease, slot: int, serial: int, board: Board, adapter: Adapter) -> None:
        """A lease about to be published in ``slot`` under ``serial``."""
        self.lease, self.slot, self.serial, self.board = lease, slot, serial, board
        self.ended_at_generation = 0
        self.concluded = False
        self._adapter = adapter
        self._seen: dict[tuple[Identity, str], int] = {}
        self._totals: dict[str, int] = {}
        self._fired = {self._who(worker): self._passes(worker) for worker in board.workers()}
        self._struck: set[Identity] = set()
        self._failed: set[Identity] = set()
        self._lost = {self._who(worker): worker.get(WorkerWord.LOST) for worker in board.workers()}
        self._reasons: list[str] = []
        self._gone: list[str] = []
        self._undone: dict[str, float] = {}
        self._release: threading.Thread | None = None
        self._asking: threading.Thread | None = None
        self._ask_at = 0.0
        self._released = False

    # -- while it lives

    def take(self, record: Mapping[str, Any]) -> None:
        """One record of a worker's ring."""
        kind, value = record["k"], record["v"]
        with self.lease.lock:
            if kind in ("sites", "requests"):
                _add(self.lease.sites if kind == "sites" else self.lease.engine.setdefault("requests", {}), value)
            elif kind == "figures":
                _merge(self.lease.achieved, value)
            elif kind == "note":
                _append(self.lease.engine, value)
            elif kind == "undone":
                self._undone.update({name: self._undone.get(name, 0.0) + figure for name, figure in value.items()})
            elif kind == "unproven":
                self._reasons.append(value)
            elif kind == "error":
                self.lease.engine["last_error"] = value

    def count(self) -> None:
        """Bring the counters over; they only grow, so nothing is counted twice and nothing lost."""
        workers = [w for w in self.board.workers() if w.column(self.slot).serial == self.serial]
        for worker in workers:
            column, who = worker.column(self.slot), self._who(worker)
            if column.state not in (Column.LIVE, Column.UNTOUCHED):
                self._struck.add(who)
            if column.state == Column.FAILED:
                self._failed.add(who)
            new = {name: self._new(who, name, column.get(word)) for name, word in _COUNTS.items()}
            stamps = column.get(Column.FIRST_NS) / 1e9, column.get(Column.LAST_NS) / 1e9
            _book(self.lease, new, *stamps)
            for name, word in _UNDO_FIGURES.items():
                self._totals[name] = self._totals.get(name, 0) + self._new(who, name, column.get(word))
        self._tell(workers)
        self._foresee()

    def _foresee(self) -> None:
        """A lease may end by a deadline or its limit before the book says ``finish``: it must not look undone then."""
        lease = self.lease
        if not self.ended_at_generation:
            ending = bool(lease.ended_by) or lease.deadline() <= time.monotonic() + _SOON_SECONDS
            lease.undo = Undo(pending=True) if ending else None

    def _new(self, who: Identity, name: str, value: int) -> int:
        before = self._seen.get((who, name), 0)
        self._seen[who, name] = value
        return value - before

    def _tell(self, workers: list[WorkerSlot]) -> None:
        """What the workers know, in the lease's ``engine``."""
        steps = sum(worker.column(self.slot).get(Column.STEPS) for worker in workers)
        passes = sum(self._passes(w) - self._fired.get(self._who(w), 0) for w in self.board.workers())
        lost = sum(worker.get(WorkerWord.LOST) - self._lost.get(self._who(worker), 0) for worker in workers)
        with self.lease.lock:
            engine = self.lease.engine
            engine["acknowledged"] = bool(workers)
            engine["steps_with_match"], engine["seam_passes"] = steps, passes
            engine["lost_details"] = lost
            living = {self._who(worker) for worker in self.board.workers() if worker.alive}
            if died := sorted(who.pid for who in self._struck if who not in living):
                engine["died"] = died
            if reason := self._not_firing(steps, passes):
                engine["not_firing"] = reason
            else:
                engine.pop("not_firing", None)

    def _not_firing(self, steps: int, passes: int) -> str:
        seam, lease = self.lease.fault.seam, self.lease
        if passes or lease.applied or lease.spec.mode == "observe" or not lease.fault.selectable:
            return ""
        if seam in _EVERY_STEP and steps >= _NOT_FIRING:
            return f"the seam {seam} was not passed in {steps} steps with a matching request in flight"
        if seam not in _EVERY_STEP and lease.matched >= _NOT_FIRING:
            return f"the seam {seam} was not passed while {lease.matched} matching requests were in flight"
        return ""

    def _passes(self, worker: WorkerSlot) -> int:
        seam = self.lease.fault.seam
        return 0 if seam is None else worker.get(WorkerWord.FIRED + SEAMS.index(seam))

    def _who(self, worker: WorkerSlot) -> Identity:
        return worker.identity

    # -- once it has ended

    def settled(self) -> bool:
        """Whether it has ended and every living process has said that it is done with it."""
        if not self.ended_at_generation:
            return False
        waiting = [worker for worker in self.board.workers() if worker.alive and not self._done(worker)]
        living = {self._who(worker) for worker in self.board.workers() if worker.alive}
        self._gone = [str(who.pid) for who in self._struck if who not in living]
        names = ", ".join(f"{worker.name} ({worker.identity.pid})" for worker in waiting)
        self._show(True, f"process {names} has not undone it yet" if names else "")
        if waiting:
            self._ask()
        return not waiting

    def _ask(self) -> None:
        """What is put back between two steps waits in an engine that is idle: ask for it, again and again."""
        now = time.monotonic()
        self._ask_at = self._ask_at or now + _RETRY_SECONDS  # most are done by then, and without us
        if now >= self._ask_at and not (self._asking is not None and self._asking.is_alive()):
            self._ask_at = now + _RETRY_SECONDS
            self._asking = threading.Thread(target=self._undo_now, name="chaos-mm-undo", daemon=True)
            self._asking.start()

    def _undo_now(self) -> None:
        try:
            self._adapter.undo_now()
        except Exception as error:  # the lease says what is waited for, and this is asked again
            logger.info("lease %s: the engine could not be asked to undo it: %s", self.lease.name, error)

    def _done(self, worker: WorkerSlot) -> bool:
        column = worker.column(self.slot)
        if column.serial == self.serial:
            return column.state >= Column.CLEAN
        return worker.get(WorkerWord.ACK) >= self.ended_at_generation

    def conclude(self) -> None:
        """Let the adapter evict and flush, in a thread; then say how the undo went."""
        if not self._struck:  # nothing was harmed, so there is nothing to evict
            self._released = True
        elif self._release is None:
            self._release = threading.Thread(target=self._after_release, name="chaos-mm-release", daemon=True)
            self._release.start()
        if self._released:
            self._show(False)
            self.concluded = True

    def _after_release(self) -> None:
        until = time.monotonic() + _GIVE_UP_SECONDS
        while not self._tried(last=time.monotonic() > until):
            time.sleep(_RETRY_SECONDS)
        self._released = True

    def _tried(self, last: bool) -> bool:
        """Whether the adapter's part is over, well or not."""
        try:
            figures = self._adapter.after_release(self.lease)
        except NotYet as error:
            if not last:
                return False
            self._reasons.append(str(error))
        except ChaosMMError as error:
            self._reasons.append(str(error))
        except Exception as error:  # an adapter may fail in any way: then the clean state is not proven
            self._reasons.append(f"{type(error).__name__}: {error}")
            logger.exception("lease %s: the engine's own undo failed", self.lease.name)
        else:
            self._undone.update({name: float(value) for name, value in figures.items()})
        return True

    def _show(self, pending: bool, waiting: str = "") -> None:
        figures = {name: float(total) for name, total in self._totals.items() if total}
        reason = "; ".join(dict.fromkeys(self._reasons))
        if self._failed and not reason:
            reason = f"process {', '.join(str(who.pid) for who in self._failed)} could not undo it; why was lost"
        gone = f"process {', '.join(self._gone)} died, and what it held with it" if self._gone else ""
        proven = not pending and not reason
        self.lease.undo = Undo(pending, proven, reason or waiting or gone, {**figures, **self._undone})


def _add(into: dict[str, int], found: Mapping[str, int]) -> None:
    for name, count in found.items():
        if name in into or len(into) < _NAMES:
            into[name] = into.get(name, 0) + count


def _append(engine: dict[str, Any], found: Mapping[str, Any]) -> None:
    for name, item in found.items():
        noted = engine.setdefault(name, [])
        if isinstance(noted, list) and len(noted) < _NOTES:
            noted.append(item)


def _merge(into: dict[str, Tally], found: Mapping[str, list[float]]) -> None:
    for name, (count, total, low, high) in found.items():
        tally = into.setdefault(name, Tally())
        tally.count += int(count)
        tally.total += total
        tally.low, tally.high = min(tally.low, low), max(tally.high, high)


def _book(lease: Lease, new: Mapping[str, int], first: float, last: float) -> None:
    with lease.lock:
        lease.matched += new["matched"]
        lease.reserved += new["applied"] + new["errored"]
    for _ in range(new["applied"]):
        lease.settle(last, True, False, {})
    for _ in range(new["errored"]):
        lease.settle(last, False, True, {})
    with lease.lock:
        if first:
            lease.first_applied_at = first if lease.first_applied_at is None else min(lease.first_applied_at, first)
        if last:
            lease.last_applied_at = max(lease.last_applied_at or 0.0, last)
