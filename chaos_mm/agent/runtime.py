"""What an adapter talks to in a process of the engine: whether anything is armed, and which leases take hold where.

An adapter asks ``armed()`` first and does nothing at all when it is False, calls ``tick()`` between steps, and strikes
through the ``Armed`` that ``leases(seam)`` gives it.
"""

import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.board import Board, LeaseColumn, WorkerSlot, never
from chaos_mm.agent.holding import Holding
from chaos_mm.agent.layout import LEASES, SEAMS, Column, Header, WorkerWord, worker_at
from chaos_mm.agent.undo import UNDO_BYTES, UndoStore
from chaos_mm.agent.who import Names, Who
from chaos_mm.control.token import read_token
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Fault, Seam, Shape
from chaos_mm.faults import catalogue

__all__ = ["Guard", "Runtime", "Who"]

logger = logging.getLogger("chaos_mm.agent")
Place = Literal["step", "watcher", "own"]
_WATCH_SECONDS: Final = 0.05
_FLUSH_NS: Final = 50_000_000


class Guard(Protocol):
    """A lock, such as ``threading.Lock()``."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it."""

    def release(self) -> None:
        """Give it back."""


@dataclass(frozen=True)
class _Declared:
    """How holds of a seam are run here: what gives them their value, and in which thread."""

    value: Callable[[Armed], Any] | None
    place: Place


class Runtime:
    """One per process of the engine; from any thread. ``armed()`` is the gate; ``undo`` the store of what was written.

    ``inert``: why it does nothing, empty when it works; ``identify(id)``: who a request is, by the engine's own id.
    """

    def __init__(
        self,
        board: Board | None,
        faults: Mapping[str, Fault] | None = None,
        *,
        token: str = "",
        process: str = "engine",
        undo_bytes: int = UNDO_BYTES,
        inert: str = "",
    ) -> None:
        """Join the board as ``process``; without one the runtime is inert. Raises ChaosMMError without a free slot."""
        self.process, self.inert = process, inert if board is None else ""
        self.undo = UndoStore(undo_bytes)
        self.armed: Callable[[], bool] = never if board is None else board.armed
        self.gate: Sequence[int] = (0,) if board is None else board.words
        """Its first number is 0 while nothing is armed: for places where a call is too much. Else ask ``armed``, which
        says no in a runtime that has ended or was forked."""
        self.on_release: list[Callable[[Armed], Mapping[str, float] | None]] = []
        self._board, self._faults = board, catalogue() if faults is None else faults
        self._names = Names(token)
        self.identify: Callable[[str], Who] = self._names.identify
        self._slot: WorkerSlot | None = None if board is None else board.join(process)
        self._steps_at = WorkerWord.STEPS + (0 if self._slot is None else worker_at(self._slot.number))
        self._steps_seen = 0
        self._seen = 0
        self._held: dict[int, Armed] = {}
        self._holdings: dict[int, Holding] = {}
        self._by_seam: dict[Seam | None, tuple[Armed, ...]] = {}
        self._declared: dict[Seam, _Declared] = {}
        self._lock = threading.RLock()  # leases and counters; held for moments
        self._turning = threading.Lock()  # begin and end; whoever steps the engine never waits for it
        self._flushed_ns = 0
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()
        if board is not None:
            _inert_when_forked(self)

    @classmethod
    def from_environment(cls, process: str, faults: Mapping[str, Fault] | None = None) -> "Runtime":
        """The runtime of this process, inert where it is not wanted or not safe; logs one line in the second case.

        Reads CHAOS_MM_AGENT, CHAOS_MM_AGENT_BOARD, CHAOS_MM_AGENT_NONCE, CHAOS_MM_TOKEN_FILE, …_AGENT_UNDO_BYTES.
        """
        found = os.environ.get
        if found("CHAOS_MM_AGENT") != "1":
            return cls(None, {}, process=process, inert="CHAOS_MM_AGENT is not 1")
        try:
            path, nonce = found("CHAOS_MM_AGENT_BOARD", ""), found("CHAOS_MM_AGENT_NONCE", "")
            if not path or not nonce:
                raise ChaosMMError("CHAOS_MM_AGENT_BOARD and CHAOS_MM_AGENT_NONCE are not set: nobody made a board")
            board = Board.open(Path(path), nonce)
            most = _bytes(found("CHAOS_MM_AGENT_UNDO_BYTES", ""))
            return cls(board, faults, token=read_token(), process=process, undo_bytes=most)
        except ChaosMMError as error:
            logger.error("chaos_mm agent stays inert in %s: %s", process, error)
            return cls(None, {}, process=process, inert=str(error))

    # -- at a seam

    def leases(self, seam: Seam) -> tuple[Armed, ...]:
        """The live leases that take hold there."""
        if self._board is None:
            return ()
        if self._board.words[Header.GENERATION] != self._seen:
            self._refresh()
        found = self._by_seam.get(seam)
        return tuple(armed for armed in found if armed.live) if found else ()

    def fired(self, seam: Seam) -> None:
        """The seam was passed while armed: proof that it takes hold."""
        if self._slot is not None:
            with self._lock:
                self._slot.add(WorkerWord.FIRED + SEAMS.index(seam))

    def observe(self, requests: Iterable[RequestInfo], seen: float = math.inf) -> None:
        """Once a step while armed: who is in flight. Counts matches even where a seam should never be passed.
        Leases that are newer than the generation ``seen`` of the board take no part.
        """
        # A lease is matched where its seam is, or each process of the engine would count the same request.
        # A hold that picks nobody is one match and one application; requests beside it are not what it was to hit.
        held = [armed for armed in tuple(self._held.values()) if armed.fault.selectable]
        leases = [a for a in held if a.live and a.seam in self._declared and a.generation <= seen]
        if not leases:
            return
        found = list(requests)
        for armed in leases:
            if sum(armed.matches(request) for request in found):
                armed.book(Column.STEPS)

    def forget(self, request_id: str) -> None:
        """A request has finished and no seam will see it again."""
        who = self._names.forget(request_id)
        if who is not None:
            for armed in tuple(self._held.values()):
                armed.forget(who.id)

    # -- the life of a process

    def declare(self, seam: Seam, value: Callable[[Armed], Any] | None = None, place: Place = "step") -> None:
        """This process has the seam. ``value(armed)`` gives hold faults what they act on (or NOT_NOW: ask again).

        ``place``: where holds begin and end and bytes are put back: ``step``, in ``tick()`` alone; ``watcher``, in the
        watcher thread too; ``own``, each hold in a thread of its own (one that waits or ramps).
        """
        self._declared[seam] = _Declared(value, place)
        if self._slot is not None:
            self._slot.set(WorkerWord.SEAMS, self._slot.get(WorkerWord.SEAMS) | 1 << SEAMS.index(seam))

    def hooks(self, count: int) -> None:
        """How many hooks and patches of ours stand in the engine now."""
        if self._slot is not None:
            self._slot.set(WorkerWord.HOOKS, count)

    def tick(self) -> None:
        """Between two steps, in the thread that runs them: count the step, begin and end what is due here."""
        if self._board is None:
            return
        words = self._board.words
        words[self._steps_at] += 1
        if not self._held and words[Header.GENERATION] == self._seen:
            return
        try:
            self._turn(step=True, wait=False)
        except Exception:  # an error of the agent's must not become the engine's
            _say("the agent met an error between two steps")

    def watch(self, guard: Guard | None = None) -> None:
        """Start the watcher thread: it reads new leases, ends what has expired and writes details, every 50 ms.

        ``guard``: a lock that the adapter holds during a step; with it the watcher does the work of an idle engine's
        ``tick`` as well. Without it, bytes at ``step`` seams wait for the next step.
        """
        if self._board is not None and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(guard,), name="chaos-mm-agent", daemon=True)
            self._watcher.start()

    def hold(self, armed: Armed, value: Any) -> None:
        """Begin a hold fault on ``value`` in this thread; ``tick`` or the watcher ends it."""
        if armed.serial not in self._holdings:
            self._holdings[armed.serial] = Holding(armed, value)
            self._holdings[armed.serial].begin()

    def flush(self, armed: Armed) -> None:
        """Write the details of a lease to the board now."""
        if self._slot is not None:
            with self._lock:
                self._slot.add(WorkerWord.LOST, armed.ledger.flush(self._slot.push))

    def close(self) -> None:
        """End the watcher. What is held is undone first, as far as this thread may."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join(2.0)
        self.armed = never
        for armed in tuple(self._held.values()):
            armed.close()
            self._end(armed)

    def abandon(self) -> None:
        """Do nothing any more, and leave the page as it is."""
        self.armed, self.inert = never, "this process was forked from the one that joined; make a runtime of its own"
        self._board = self._slot = None
        self._held, self._by_seam = {}, {}

    @property
    def page(self) -> Board:
        """The board. Raises ChaosMMError where the runtime is inert."""
        if self._board is None:
            raise ChaosMMError(f"the agent is inert in {self.process}: {self.inert}")
        return self._board

    def column(self, slot: int) -> LeaseColumn:
        """This process's words for a lease slot. Raises ChaosMMError where the runtime is inert."""
        if self._slot is None:
            raise ChaosMMError(f"the agent is inert in {self.process}: {self.inert}")
        return self._slot.column(slot)

    # -- inside

    def _refresh(self) -> None:
        with self._lock:
            generation = self.page.generation
            whole = all([self._read(slot) for slot in range(LEASES)])
            self._index()
            if whole and self._slot is not None:
                self._seen = generation
                self._slot.set(WorkerWord.ACK, generation)

    def _read(self, slot: int) -> bool:
        """Take up a new lease of that slot; False where its text is just being written."""
        board = self.page
        if board.serial(slot) in self._held or board.deadline(slot) <= time.monotonic_ns():
            return True
        spec = board.spec(slot)
        if spec is None:
            return board.deadline(slot) == 0
        try:
            self._held[spec["serial"]] = Armed(self, slot, spec, self._faults[spec["fault"]])
        except (LookupError, ChaosMMError) as error:  # another version serves: it must not stop this one's engine
            logger.error("lease %s cannot be run in %s: %s", spec.get("name"), self.process, error)
        return True

    def _index(self) -> None:
        found: dict[Seam | None, list[Armed]] = {}
        for armed in self._held.values():
            found.setdefault(armed.seam, []).append(armed)
        self._by_seam = {seam: tuple(leases) for seam, leases in found.items()}

    def _watch(self, guard: Guard | None) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            try:
                if self._slot is not None:
                    self._steps_seen = self._slot.beat(self._steps_seen)
                idle = guard is not None and guard.acquire(blocking=False)
                try:
                    self._turn(step=idle, wait=True)
                finally:
                    if idle and guard is not None:
                        guard.release()
            except Exception:  # the watcher is what ends harm: it must go on
                _say("the agent's watcher met an error")

    def _turn(self, step: bool, wait: bool) -> None:
        """Begin, end and report what may be done in this thread; ``step``: no step is running.

        Unless it may ``wait``, it leaves that to the other thread which is at it just now.
        """
        if not self._turning.acquire(blocking=wait):
            return
        try:
            if self.page.generation != self._seen:
                self._refresh()
            for armed in tuple(self._held.values()):
                if not armed.live:
                    self._over(armed, step)
                elif armed.fault.shape is Shape.HOLD and armed.serial not in self._holdings:
                    self._begin(armed, step)
            self._report()
        finally:
            self._turning.release()

    def _report(self) -> None:
        now = time.monotonic_ns()
        if now - self._flushed_ns > _FLUSH_NS:
            self._flushed_ns = now
            for armed in tuple(self._held.values()):
                self.flush(armed)

    def _begin(self, armed: Armed, step: bool) -> None:
        declared = self._declared.get(armed.seam) if armed.seam else None
        if declared is None or declared.value is None or (declared.place == "step" and not step):
            return
        value = NOT_NOW if armed.observe or armed.noop else self._value(armed, declared.value)
        if value is not NOT_NOW:
            self._holdings[armed.serial] = holding = Holding(armed, value)
            holding.start() if declared.place == "own" else holding.begin()

    def _value(self, armed: Armed, make: Callable[[Armed], Any]) -> Any:
        """What the seam gives the fault; NOT_NOW where it cannot, and then never again for this lease."""
        try:
            return NOT_NOW if armed.hopeless else make(armed)
        except Exception as error:  # adapters reach into engines: whatever comes out of that must not reach the engine
            armed.refused(f"{type(error).__name__}: {error}")
            return NOT_NOW

    def _over(self, armed: Armed, step: bool) -> None:
        """A lease that has ended: undo it if this thread may."""
        declared = self._declared.get(armed.seam) if armed.seam else None
        held = armed.serial in self._holdings or self.undo.pending(armed.key) or (self.on_release and armed.struck)
        if armed.close() and (step or not held or (declared is not None and declared.place != "step")):
            self._end(armed)
        if self._slot is not None:
            self._slot.set(WorkerWord.PENDING_UNDO, sum(not a.live for a in tuple(self._held.values())))

    def _end(self, armed: Armed) -> None:
        holding = self._holdings.get(armed.serial)
        if holding is not None and not holding.end():
            return
        undone = self.undo.restore(armed.key)
        armed.book(Column.RESTORED, undone.restored_elements)
        armed.book(Column.SKIPPED, undone.skipped_elements)
        armed.book(Column.INVALIDATED, undone.invalidated_blocks)
        armed.fail(undone.reason)
        if undone.waiting:
            return
        self._released(armed)
        self._finish(armed)

    def _released(self, armed: Armed) -> None:
        for call in self.on_release:  # of one that struck nobody too: what was set up for it must go
            try:
                figures = call(armed)
            except Exception as error:  # one undo failing must never stop the others
                armed.fail(f"{type(error).__name__}: {error}")
                logger.error("lease %s: an undo failed: %s", armed.name, type(error).__name__)
            else:
                armed.ledger.note("undone", dict(figures or {}))

    def _finish(self, armed: Armed) -> None:
        if armed.failure:
            armed.ledger.note("unproven", armed.failure[:300])
        self.flush(armed)
        if self._slot is not None:
            self._slot.add(WorkerWord.LOST, armed.ledger.waiting)
        ended = Column.CLEAN if armed.struck else Column.UNTOUCHED
        armed.mark(Column.FAILED if armed.failure else ended)
        self._holdings.pop(armed.serial, None)
        with self._lock:  # a seam may be reading a new lease in just now, which an index of before would leave out
            self._held.pop(armed.serial, None)
            self._index()


def _say(what: str) -> None:
    """Log the error at hand; where a fault left no memory even for that, silence is better than a dead watcher."""
    with contextlib.suppress(Exception):
        logger.exception(what)


def _inert_when_forked(runtime: Runtime) -> None:
    """A forked child has its parent's page and slot, but none of its threads: it must write to neither."""
    known = weakref.ref(runtime)

    def forked() -> None:
        found = known()
        if found is not None:
            found.abandon()

    os.register_at_fork(after_in_child=forked)


def _bytes(text: str) -> int:
    if not text:
        return UNDO_BYTES
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ChaosMMError(f"CHAOS_MM_AGENT_UNDO_BYTES={text[:40]!r} is not allowed; it must be a number of bytes")
    return int(text)
