"""The board: one page file that the processes of an engine share. It says what may harm, and until when.

Word 0 is a deadline on CLOCK_MONOTONIC: past it nothing harms, whoever still lives. A reader must name the nonce that
the page was made with; a page with another one is not ours and is refused. One host, one user: the file is 0600.
"""

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chaos_mm.agent.column import LeaseColumn
from chaos_mm.agent.identity import Identity
from chaos_mm.agent.layout import (
    LEASES,
    MAGIC,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORDS,
    SEAMS,
    SPEC_BYTES,
    WORKERS,
    Header,
    LeaseWord,
    WorkerWord,
    column_at,
    lease_at,
    record_at,
    spec_at,
    worker_at,
)
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Seam

__all__ = ["Board", "LeaseColumn", "WorkerSlot", "never", "new_nonce"]
_LOCK_SECONDS: Final = 0.05
_NONCE_DIGITS: Final = 32


def new_nonce() -> str:
    """A fresh nonce: 32 hex digits."""
    return secrets.token_hex(_NONCE_DIGITS // 2)


class Board:
    """The page, mapped. ``words``: all of it as u64; ``armed()``: whether anything may harm now (about 60 ns when off).

    Make one with ``create`` or ``open``; a process that was forked opens its own.
    """

    def __init__(self, path: Path, handle: int) -> None:
        """Map an open file of the right size; use ``create`` or ``open``."""
        self.path, self._handle = path, handle
        self.page = mmap.mmap(handle, PAGE_BYTES)
        self.words = memoryview(self.page).cast("Q")
        self.probe_ns = 0
        self.nonce: tuple[int, int] = (0, 0)
        self.armed: Callable[[], bool] = _armed(self.words)

    @classmethod
    def create(cls, path: Path, nonce: str) -> "Board":
        """A new, disarmed page. Raises ChaosMMError where the path is taken or its folder does not allow it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        high, low = _nonce(nonce)
        try:
            handle = os.open(path, flags, 0o600)
        except OSError as error:
            raise ChaosMMError(f"board {path} cannot be made: {error.strerror}") from None
        try:
            os.fchmod(handle, 0o600)
            os.posix_fallocate(handle, 0, PAGE_BYTES)  # on a full disk a sparse page would end the engine by SIGBUS
        except OSError as error:
            os.close(handle)
            path.unlink(missing_ok=True)
            raise ChaosMMError(f"board {path} of {PAGE_BYTES} bytes cannot be made: {error.strerror}") from None
        board, me = cls(path, handle), Identity.here()
        words = board.words
        words[Header.NONCE], words[Header.NONCE + 1] = board.nonce = high, low
        words[Header.CREATOR_PID], words[Header.CREATOR_START] = me.pid, me.start
        words[Header.MAGIC] = MAGIC  # last: a reader of half a page finds no page
        return board

    @classmethod
    def open(cls, path: Path, nonce: str) -> "Board":
        """The page that was made with ``nonce``.

        Raises ChaosMMError naming the path where it is missing, a link, another user's, open to others, of another
        layout, or made with another nonce.
        """
        wanted, board = _nonce(nonce), cls.open_any(path)
        if (board.words[Header.NONCE], board.words[Header.NONCE + 1]) != wanted:
            board.close()
            raise ChaosMMError(f"board {path} was made with another nonce; it is ignored")
        board.nonce = wanted
        return board

    @classmethod
    def open_any(cls, path: Path) -> "Board":
        """As ``open``, whatever its nonce: to see whether anybody still uses it."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ChaosMMError(f"board {path} cannot be opened: {error.strerror}") from None
        try:
            _check(path, os.fstat(handle))
            board = cls(path, handle)
        except BaseException:
            os.close(handle)
            raise
        if board.words[Header.MAGIC] != MAGIC:
            board.close()
            raise ChaosMMError(f"board {path} is no page of this version")
        return board

    def close(self) -> None:
        """Unmap it; afterwards ``armed`` is False."""
        self.armed = never
        self.words.release()
        self.page.close()
        os.close(self._handle)

    @property
    def creator(self) -> Identity:
        """Who made the page."""
        return Identity(self.words[Header.CREATOR_PID], self.words[Header.CREATOR_START])

    @property
    def in_place(self) -> bool:
        """Whether the file at the path is still the page that is mapped here, with its nonce on it."""
        if (self.words[Header.NONCE], self.words[Header.NONCE + 1]) != self.nonce:
            return False
        try:
            there, here = self.path.lstat(), os.fstat(self._handle)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    @property
    def generation(self) -> int:
        """Counts changes of the lease slots."""
        return self.words[Header.GENERATION]

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Keep other processes out for a moment; yields False where they did not let us in within 50 ms.

        The kernel drops the lock of a process that dies.
        """
        until = time.monotonic() + _LOCK_SECONDS
        while not (got := _flock(self._handle)) and time.monotonic() < until:
            time.sleep(0.0005)
        try:
            yield got
        finally:
            if got:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def publish(self, slot: int, serial: int, spec: Mapping[str, Any], deadline_ns: int) -> int:
        """Put a lease into a slot, live until ``deadline_ns``; the new generation.

        Raises ChaosMMError where its text is longer than a slot.
        """
        text = json.dumps({**spec, "serial": serial}, allow_nan=False).encode()
        if len(text) > SPEC_BYTES:
            raise ChaosMMError(f"a lease of {len(text)} bytes is longer than the {SPEC_BYTES} that a slot holds")
        at, words = lease_at(slot), self.words
        words[at + LeaseWord.DEADLINE] = 0
        words[at + LeaseWord.SERIAL] = 0
        self.page[spec_at(slot) : spec_at(slot) + len(text)] = text
        words[at + LeaseWord.LENGTH] = len(text)
        words[at + LeaseWord.GENERATION] = words[Header.GENERATION] + 1
        words[at + LeaseWord.SERIAL] = serial
        words[at + LeaseWord.DEADLINE] = deadline_ns
        self._set_word_zero()
        words[Header.GENERATION] += 1  # last: whoever has seen it finds the lease in its slot and the page armed
        return self.generation

    def extend(self, slot: int, deadline_ns: int) -> None:
        """Move a lease's deadline; word 0, the latest of all, is written after it."""
        self.words[lease_at(slot) + LeaseWord.DEADLINE] = deadline_ns
        self._set_word_zero()

    def withdraw(self, slot: int) -> int:
        """End a lease; the new generation. Word 0 goes first where no other lease lives."""
        words, at = self.words, lease_at(slot) + LeaseWord.DEADLINE
        now = time.monotonic_ns()
        others = [words[lease_at(s) + LeaseWord.DEADLINE] for s in range(LEASES) if s != slot]
        words[Header.DEADLINE] = max((d for d in (*others, self.probe_ns) if d > now), default=0)
        words[at] = 0
        words[Header.GENERATION] += 1
        return self.generation

    def probe(self, deadline_ns: int) -> None:
        """Arm the page with nothing on it until then (0: no longer), so that seams count their passes and harm none."""
        self.probe_ns = deadline_ns
        self._set_word_zero()

    def _set_word_zero(self) -> None:
        deadlines = [self.words[lease_at(slot) + LeaseWord.DEADLINE] for slot in range(LEASES)]
        self.words[Header.DEADLINE] = max(*deadlines, self.probe_ns)

    def deadline(self, slot: int) -> int:
        """When the slot's lease ends by itself, ns on CLOCK_MONOTONIC; 0: none, or ended."""
        return self.words[lease_at(slot) + LeaseWord.DEADLINE]

    def serial(self, slot: int) -> int:
        """The number of the slot's lease."""
        return self.words[lease_at(slot) + LeaseWord.SERIAL]

    def spec(self, slot: int) -> dict[str, Any] | None:
        """The text of the slot's lease, or None while it is being written."""
        serial, length = self.serial(slot), self.words[lease_at(slot) + LeaseWord.LENGTH]
        try:
            found = json.loads(self.page[spec_at(slot) : spec_at(slot) + min(length, SPEC_BYTES)])
        except ValueError:
            return None
        same = isinstance(found, dict) and found.get("serial") == serial == self.serial(slot)
        return found if same and serial else None

    def join(self, name: str) -> "WorkerSlot":
        """Take a worker slot for this process. Raises ChaosMMError where all eight are taken by living processes."""
        me = Identity.here()
        with self.locked() as got:
            slots = [WorkerSlot(self, number) for number in range(WORKERS)]
            free = [s for s in slots if not s.identity.pid] + [s for s in slots if not s.alive]
            if not got or not free:
                raise ChaosMMError(f"board {self.path}: all {WORKERS} worker slots are taken, or the page is held")
            free[0].take(me, name)
            return free[0]

    def workers(self) -> list["WorkerSlot"]:
        """Every worker that ever joined and whose slot nobody took over, the dead included."""
        slots = [WorkerSlot(self, number) for number in range(WORKERS)]
        return [slot for slot in slots if slot.identity.pid]


@dataclass(frozen=True)
class WorkerSlot:
    """One process's part of the page: its counters and its ring of records."""

    board: Board
    number: int

    def get(self, word: int) -> int:
        """A word of the slot."""
        return self.board.words[worker_at(self.number) + word]

    def set(self, word: int, value: int) -> None:
        """Write a word of the slot."""
        self.board.words[worker_at(self.number) + word] = value

    def add(self, word: int, count: int = 1) -> None:
        """Add to a word; the caller keeps its own threads apart."""
        self.board.words[worker_at(self.number) + word] += count

    def beat(self, seen: int) -> int:
        """Say that the process lives, and that its engine went on where its steps are no longer ``seen``; the steps.

        The engine only counts its steps: between two of them even a look at the clock can be felt.
        """
        now, steps = time.monotonic_ns(), self.get(WorkerWord.STEPS)
        self.set(WorkerWord.BEAT_NS, now)
        if steps != seen:
            self.set(WorkerWord.LAST_STEP_NS, now)
        return steps

    def take(self, me: Identity, name: str) -> None:
        """Begin anew here; what is unread in the ring stays."""
        tail, head = self.get(WorkerWord.TAIL), self.get(WorkerWord.HEAD)
        self.set(WorkerWord.PID, 0)
        for word in range(WorkerWord.ACK, WorkerWord.FIRED + len(SEAMS)):
            self.set(word, {WorkerWord.TAIL: tail, WorkerWord.HEAD: head}.get(word, 0))
        for lease in range(LEASES):
            self.column(lease).clear()
        at = (worker_at(self.number) + WorkerWord.NAME) * 8
        self.board.page[at : at + 32] = name.encode("ascii", "replace")[:32].ljust(32, b"\0")
        self.set(WorkerWord.START, me.start)
        self.set(WorkerWord.PID, me.pid)

    @property
    def identity(self) -> Identity:
        """Whose slot it is; pid 0: nobody's."""
        return Identity(self.get(WorkerWord.PID), self.get(WorkerWord.START))

    @property
    def alive(self) -> bool:
        """Whether that process runs."""
        found = self.identity
        return found.pid > 0 and found.alive

    @property
    def name(self) -> str:
        """What the process calls itself."""
        at = (worker_at(self.number) + WorkerWord.NAME) * 8
        return self.board.page[at : at + 32].rstrip(b"\0").decode("ascii", "replace")

    @property
    def seams(self) -> frozenset[Seam]:
        """Seams that take hold in that process."""
        bits = self.get(WorkerWord.SEAMS)
        return frozenset(seam for n, seam in enumerate(SEAMS) if bits >> n & 1)

    def column(self, lease: int) -> "LeaseColumn":
        """What this worker says of one lease slot."""
        return LeaseColumn(self.board.words, column_at(self.number, lease))

    def push(self, record: Mapping[str, Any]) -> bool:
        """Append a record; False where the ring is full or the record is longer than one takes (not counted here)."""
        text = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
        head = self.get(WorkerWord.HEAD)
        if len(text) > RECORD_BYTES - 8 or head - self.get(WorkerWord.TAIL) >= RECORDS:
            return False
        at = record_at(self.number, head)
        stamp = len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
        self.board.page[at : at + 8 + len(text)] = stamp + text
        self.set(WorkerWord.HEAD, head + 1)
        return True

    def pull(self) -> Iterator[dict[str, Any]]:
        """Every unread record. One that is not yet whole (its checksum differs) waits for the next call."""
        tail, head = self.get(WorkerWord.TAIL), self.get(WorkerWord.HEAD)
        while tail < head:
            at = record_at(self.number, tail)
            stamp = self.board.page[at : at + 8]
            text = self.board.page[at + 8 : at + 8 + min(int.from_bytes(stamp[:4], "little"), RECORD_BYTES - 8)]
            if zlib.crc32(text).to_bytes(4, "little") != stamp[4:]:
                return
            tail += 1
            self.set(WorkerWord.TAIL, tail)
            yield json.loads(text)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ChaosMMError(f"board {path} is not a plain file")
    if found.st_uid != os.getuid():
        raise ChaosMMError(f"board {path} belongs to user {found.st_uid}, not to you ({os.getuid()})")
    if found.st_mode & 0o077:
        raise ChaosMMError(f"board {path} is open to others (mode {stat.S_IMODE(found.st_mode):o}); it is ignored")
    if found.st_size != PAGE_BYTES:
        raise ChaosMMError(f"board {path} is no page of this version: {found.st_size} bytes, not {PAGE_BYTES}")


def _armed(words: memoryview) -> Callable[[], bool]:
    def armed(words: memoryview = words, now: Callable[[], int] = time.monotonic_ns) -> bool:
        deadline = words[0]
        return deadline != 0 and deadline > now()

    return armed


def never() -> bool:
    """What ``armed`` is where there is no page to ask."""
    return False


def _nonce(text: str) -> tuple[int, int]:
    if len(text) != _NONCE_DIGITS or not set(text) <= set("0123456789abcdef"):
        raise ChaosMMError(f"a board's nonce is {_NONCE_DIGITS} hex digits; {len(text)} characters were given")
    return int(text[:16], 16), int(text[16:], 16)


def _flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
