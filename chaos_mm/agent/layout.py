"""Where what stands on the shared page, in words of 8 bytes and, for texts, in bytes. Each word has one writer.

header · 16 lease slots · 8 worker slots (words, then 16 lease columns each) · lease texts · event rings
"""

from typing import Final

from chaos_mm.core.fault import Seam

__all__ = [
    "LEASES",
    "MAGIC",
    "PAGE_BYTES",
    "RECORDS",
    "RECORD_BYTES",
    "SEAMS",
    "SPEC_BYTES",
    "WORKERS",
    "Column",
    "Header",
    "LeaseWord",
    "WorkerWord",
    "column_at",
    "lease_at",
    "record_at",
    "spec_at",
    "worker_at",
]

MAGIC: Final = int.from_bytes(b"CHAOSMM\x02", "little")
"""First thing a reader checks; its last byte is the version of this layout."""
LEASES: Final = 16
WORKERS: Final = 8
SPEC_BYTES: Final = 8192
RECORDS: Final = 256
RECORD_BYTES: Final = 512
SEAMS: Final = tuple(Seam)
"""Order of the ``fired`` words and of the bits of ``WorkerWord.SEAMS``."""

_HEADER_WORDS, _LEASE_WORDS, _WORKER_WORDS, _COLUMN_WORDS = 64, 8, 64, 16
_LEASE_AT = _HEADER_WORDS
_WORKER_AT = _LEASE_AT + LEASES * _LEASE_WORDS
_WORKER_SPAN = _WORKER_WORDS + LEASES * _COLUMN_WORDS
_SPEC_AT = -(-(_WORKER_AT + WORKERS * _WORKER_SPAN) * 8 // 4096) * 4096
_RING_AT = _SPEC_AT + LEASES * SPEC_BYTES
PAGE_BYTES: Final = _RING_AT + WORKERS * RECORDS * RECORD_BYTES


class Header:
    """Words of the header. The creator writes MAGIC to CREATOR_START once; the control process the rest."""

    DEADLINE = 0  # ns on CLOCK_MONOTONIC after which nothing may harm; 0: off. The one compare on every hot path
    GENERATION = 1  # counts changes of the lease slots
    MAGIC = 2
    NONCE = 3  # and 4
    CREATOR_PID = 5
    CREATOR_START = 6


class LeaseWord:
    """Words of a lease slot, written by the control process."""

    DEADLINE = 0  # ns on CLOCK_MONOTONIC; 0: ended
    SERIAL = 1  # number of the lease, never used twice on one page
    LENGTH = 2  # bytes of its text
    GENERATION = 3  # of the header, from which on it is there


class WorkerWord:
    """Words of a worker slot, written by that worker; TAIL by the control process."""

    PID = 0
    START = 1
    ACK = 2  # generation that the worker has read
    STEPS = 3
    LAST_STEP_NS = 4  # when its watcher last saw that steps were counted
    HOOKS = 5
    PENDING_UNDO = 6  # leases that have ended and are not yet undone here
    LOST = 7  # details that did not fit; counters never are
    SEAMS = 8  # bits: seams that take hold in this process
    HEAD = 9  # records written
    TAIL = 10  # records read
    BEAT_NS = 11  # when its watcher last looked
    NAME = 12  # to 15: 32 bytes of ASCII
    FIRED = 16  # one word a seam


class Column:
    """Words of one lease in one worker; valid while STATE holds the lease's serial."""

    STATE = 0  # serial * 8 + one of the five below
    MATCHED = 1
    APPLIED = 2
    ERRORED = 3
    CLAIMED = 4  # requests counted against the limit
    FIRST_NS = 5
    LAST_NS = 6
    STEPS = 7  # steps with a matching request in flight
    RESTORED = 8
    SKIPPED = 9
    INVALIDATED = 10
    SAVED = 11

    COUNT = 16
    LIVE, STRUCK = 0, 1  # at work; STRUCK: something may have to be undone
    CLEAN, FAILED, UNTOUCHED = 2, 3, 4  # ended: undone, undone in part, nothing was done


def lease_at(slot: int) -> int:
    """First word of a lease slot."""
    return _LEASE_AT + slot * _LEASE_WORDS


def worker_at(slot: int) -> int:
    """First word of a worker slot."""
    return _WORKER_AT + slot * _WORKER_SPAN


def column_at(worker: int, lease: int) -> int:
    """First word of a lease's column in a worker's slot."""
    return worker_at(worker) + _WORKER_WORDS + lease * _COLUMN_WORDS


def spec_at(slot: int) -> int:
    """First byte of a lease's text."""
    return _SPEC_AT + slot * SPEC_BYTES


def record_at(worker: int, number: int) -> int:
    """First byte of a record of a worker's ring."""
    return _RING_AT + (worker * RECORDS + number % RECORDS) * RECORD_BYTES
