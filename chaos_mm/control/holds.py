"""Runs hold faults, each in a thread of its own, from the beginning of its lease until its undo is proven.

A hold fault is a generator: it sets up, yields its figures once, and undoes in ``finally``. What outlives this process
is written to the undo log before it is done, so that the next start can sweep it; what is left there of a lease when
its thread is through is not undone, whatever the fault says.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from chaos_mm.core.errors import ChaosMMError, NotInjectable
from chaos_mm.core.fault import Effect, Fault
from chaos_mm.core.lease import Lease, Tally, Undo
from chaos_mm.core.rng import Rng
from chaos_mm.core.undo import UndoLog, UndoRecord

__all__ = ["Hold", "Holds", "Kind", "never"]

logger = logging.getLogger("chaos_mm.lease")
BEGIN_SECONDS = 0.2
"""What ``begin`` waits for a hold to stand; a ramp goes on beyond it."""
_LOOK_SECONDS = 0.1
_THROUGH = object()
_RESTART = "restart needed: the process ends, and nothing here brings it back; another one must serve in its place"


def never() -> str:
    """No reason to refuse."""
    return ""


@dataclass(frozen=True)
class Kind:
    """What can be handed to a fault: how it is made for a hold, and why it cannot be had here ("" when it can)."""

    give: "Callable[[Hold], Any]"
    refusal: Callable[[], str] = never


class Hold:
    """One lease's hold: the time it has, its undo records, and the figures of its undo."""

    def __init__(self, lease: Lease, log: UndoLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease, self.clock, self._log = lease, clock, log
        self.ended = threading.Event()
        self.settled = threading.Event()
        self.error: ChaosMMError | None = None
        self.undo_figures: dict[str, float] = {}
        self._records: dict[str, UndoRecord] = {}
        self._renewed: list[Callable[[float], None]] = []

    @property
    def live(self) -> bool:
        """Whether the lease may still harm; its deadlines count even where nobody looks at the book."""
        return not self.ended.is_set() and self.lease.live_at(self.clock())

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives, False (at once) when it has ended."""
        until = self.clock() + seconds
        while self.live and (left := until - self.clock()) > 0:
            self.ended.wait(min(left, _LOOK_SECONDS))
        return self.live

    def deadline(self) -> float:
        """When the lease ends by itself, on the monotonic clock."""
        return self.lease.deadline()

    def each_renewal(self, tell: Callable[[float], None]) -> None:
        """``tell(deadline)`` now and whenever a keepalive moves it; it must not block."""
        self._renewed.append(tell)
        tell(self.deadline())

    def renewed(self) -> None:
        """The deadline was moved."""
        for tell in list(self._renewed):
            tell(self.deadline())

    def write(self, kind: str, data: Mapping[str, Any]) -> UndoRecord:
        """Write down how to undo what is about to be done; durable when this returns."""
        record = self._log.write(kind, {**data, "lease": self.lease.name})
        self._records[record.id] = record
        return record

    def done(self, record: UndoRecord) -> None:
        """It is undone and proven so."""
        self._log.done(record)
        self._records.pop(record.id, None)

    @property
    def left(self) -> int:
        """Undo records not yet done."""
        return len(self._records)

    def undone(self, figures: Mapping[str, float]) -> None:
        """Figures for the lease's undo."""
        self.undo_figures.update(figures)


class Holds:
    """The actuator of a point whose faults hold something; thread-safe. ``kinds``: by the annotation of what a fault
    takes first.
    """

    def __init__(self, kinds: Mapping[type, Kind], log: UndoLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds, self._log, self._clock = kinds, log, clock
        self._running: dict[int, tuple[Hold, threading.Thread]] = {}
        self._lock = threading.Lock()

    def refusal(self, fault: Fault) -> str:
        """Why the fault cannot be run here now, by name; empty when it can."""
        kind = self._kind(fault)
        return f"nothing here can be handed to {fault.name}" if kind is None else kind.refusal()

    def selectable(self, fault: Fault) -> bool:
        """Nothing beside the engine sees requests."""
        return False

    def describe(self, fault: Fault) -> Mapping[str, Any]:
        """``fatal``: why a restart is needed, else empty."""
        return {"fatal": _RESTART if fault.effect is Effect.EXITS else ""}

    def begin(self, lease: Lease) -> None:
        """Start the fault's thread. Raises ChaosMMError when it failed at once; then no lease comes to be."""
        lease.count_match()
        lease.engine = {name: value for name, value in self.describe(lease.fault).items() if value}
        if lease.spec.mode == "observe":
            return
        kind = self._kind(lease.fault)
        if kind is None:
            raise NotInjectable(self.refusal(lease.fault))
        hold = Hold(lease, self._log, self._clock)
        thread = threading.Thread(target=self._run, args=(hold, kind), name=f"chaos-mm-hold-{lease.name}", daemon=True)
        with self._lock:
            self._running[id(lease)] = hold, thread
        thread.start()
        hold.settled.wait(BEGIN_SECONDS)
        if hold.error is not None:
            raise hold.error

    def renew(self, lease: Lease) -> None:
        """Tell whatever watches beside us that the lease lives on."""
        running = self._of(lease)
        if running is not None:
            running[0].renewed()

    def finish(self, lease: Lease) -> None:
        """End the hold; its thread undoes it and reports through ``lease.undo``."""
        running = self._of(lease)
        if running is not None and running[1].is_alive():
            with lease.lock:
                lease.undo = lease.undo or Undo()
            running[0].ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait until every thread is through; whether they are."""
        until = self._clock() + seconds
        with self._lock:
            threads = [thread for _, thread in self._running.values()]
        for thread in threads:
            thread.join(max(0.0, until - self._clock()))
        return not any(thread.is_alive() for thread in threads)

    def _of(self, lease: Lease) -> tuple[Hold, threading.Thread] | None:
        with self._lock:
            return self._running.get(id(lease))

    def _kind(self, fault: Fault) -> Kind | None:
        hints = get_type_hints(fault.apply)
        first = next(iter(hints.values()), None)
        return self._kinds.get(first) if isinstance(first, type) else None

    def _run(self, hold: Hold, kind: Kind) -> None:
        lease = hold.lease
        steps: Generator[Mapping[str, float], None, Any] | None = None
        try:
            steps = lease.fault.apply(kind.give(hold), _rng(lease), **lease.spec.params)
            figures = next(steps, None)
            if figures is not None:
                self._stand(hold, figures)
            elif hold.live:
                raise ChaosMMError("it ended before anything was held")
        except Exception as error:
            self._failed(hold, error)
        else:
            self._undo(hold, steps)
        finally:
            hold.settled.set()
            with self._lock:
                self._running.pop(id(lease), None)

    def _stand(self, hold: Hold, figures: Mapping[str, float]) -> None:
        """Book what is held, and wait for the end of the lease."""
        lease, now = hold.lease, self._clock()
        if hold.live:  # else it ended on the way up, and this never stood
            with lease.lock:
                lease.applied += 1
                lease.first_applied_at = lease.last_applied_at = now
                for name, value in figures.items():
                    lease.achieved.setdefault(name, Tally()).add(float(value))
        hold.settled.set()
        while hold.live:
            hold.sleep(_LOOK_SECONDS * 10)

    def _undo(self, hold: Hold, steps: Generator[Any, None, Any]) -> None:
        try:
            if next(steps, _THROUGH) is not _THROUGH:
                steps.close()
                raise ChaosMMError(f"{hold.lease.fault.name} yields more than once")
        except Exception as error:
            self._report(hold, _sentence(error))
        else:
            self._report(hold, f"{hold.left} undo records are left" if hold.left else "")

    def _report(self, hold: Hold, reason: str) -> None:
        lease = hold.lease
        with lease.lock:
            lease.undo = Undo(False, not reason, reason, dict(hold.undo_figures))
        if reason:
            logger.error("the undo of lease %s is not proven: %s", lease.name, reason)

    def _failed(self, hold: Hold, error: Exception) -> None:
        """It never stood. What it had begun was undone on the way, where no undo record is left."""
        lease, text = hold.lease, _sentence(error)
        kind = type(error) if isinstance(error, ChaosMMError) else ChaosMMError
        hold.error = kind(f"{lease.fault.name}: {text}")
        logger.warning("lease %s: %s did not come to be: %s", lease.name, lease.fault.name, text)
        with lease.lock:
            lease.errored += 1
            lease.undo = Undo(False, not hold.left, text, dict(hold.undo_figures))


def _rng(lease: Lease) -> Rng:
    return Rng.derive(lease.spec.seed, lease.name, "0", lease.fault.name)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, ChaosMMError) and str(error) else f"{type(error).__name__}: {error}"
