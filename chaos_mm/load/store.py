"""The last records, in memory, bounded by number and bytes; optionally every record in a file as well."""

import logging
import math
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import IO

from chaos_mm.sli.records import Record

logger = logging.getLogger("chaos_mm.load")
_OBJECT_BYTES = 900  # a record with its numbers and short texts, measured; the long texts come on top


class Store:
    """Thread-safe ring, in the order in which requests ended. What falls out is counted in ``dropped``; of what was due
    until ``forgotten_until`` some are no longer known.

    It also knows which requests are open: ``expect`` one before it is due, say when it is ``sent``, ``add`` its record.
    """

    def __init__(self, max_records: int = 100_000, max_bytes: int = 128 << 20, file: Path | None = None) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._lock = threading.Lock()
        self._kept: deque[tuple[Record, int, float]] = deque()  # with bytes, and the latest end so far
        self._bytes = 0
        self._expected: dict[str, Record] = {}
        self.dropped = 0
        self.forgotten_until = -math.inf
        self.unwritten = 0
        self._file: IO[bytes] | None = None if file is None else file.open("ab", buffering=0)

    def expect(self, record: Record) -> None:
        """A request will be due at ``scheduled_at``; the record is what it is as long as nothing has come back."""
        with self._lock:
            self._expected[record.id] = record

    def sent(self, request_id: str, at: float, expected: str) -> None:
        """An expected request went out, and this is what its answer will be held against ("": nothing yet)."""
        with self._lock:
            record = self._expected.get(request_id)
            if record is not None:
                lag = max(0.0, at - record.scheduled_at)
                self._expected[request_id] = replace(record, sent_at=at, lag_seconds=lag, expected=expected)

    def forget(self, request_id: str) -> None:
        """It will not be sent after all."""
        with self._lock:
            self._expected.pop(request_id, None)

    def settled_until(self, now: float, patience: float = math.inf) -> float:
        """The moment before which every request is decided, ``now`` at the latest: it ended, or it is overdue.

        SLIs look no further: among requests still open are the slow ones, and to leave those out would flatter. Overdue
        is one that was due over ``patience`` seconds ago; it is known (``open``) and must be counted, not waited for.
        """
        with self._lock:
            due = (record.scheduled_at for record in self._expected.values())
            return min((now, *(at for at in due if now - at <= patience)))

    def open(self, now: float) -> list[Record]:
        """The requests that are due by now and have not ended. One that waits for the load itself lags so far."""
        with self._lock:
            found = [record for record in self._expected.values() if record.scheduled_at <= now]
        return [
            replace(record, lag_seconds=now - record.scheduled_at) if record.sent_at is None else record
            for record in found
        ]

    def add(self, record: Record) -> None:
        """Keep a record; the oldest go when there is no room. A file that fails is logged once and counted."""
        size = _OBJECT_BYTES + len(record.question) + len(record.answer) + len(record.expected)
        with self._lock:
            self._expected.pop(record.id, None)
            latest = max(record.ended_at, self._kept[-1][2]) if self._kept else record.ended_at
            self._kept.append((record, size, latest))
            self._bytes += size
            while len(self._kept) > self._max_records or (self._bytes > self._max_bytes and len(self._kept) > 1):
                self._drop()
        self._write(record)

    def _drop(self) -> None:
        record, size, _ = self._kept.popleft()
        self._bytes -= size
        self.dropped += 1
        self.forgotten_until = max(self.forgotten_until, record.scheduled_at)

    def since(self, at: float = float("-inf")) -> list[Record]:
        """Records due at or after a moment, in the order in which they ended."""
        found: list[Record] = []
        with self._lock:
            for record, _, latest in reversed(self._kept):
                # Nothing ends before it is due, so all further back were due before ``at``. Its own end says less: an
                # answer may be whole long before its connection is closed and its record comes.
                if latest < at:
                    break
                if record.scheduled_at >= at:
                    found.append(record)
        return found[::-1]

    def __len__(self) -> int:
        return len(self._kept)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, record: Record) -> None:
        if self._file is None:
            return
        try:
            self._file.write(record.to_line())
        except OSError as error:  # a full disk must not stop the load; /status and the log say what is missing
            if not self.unwritten:
                logger.error("records file cannot be written: %s", error.strerror)
            self.unwritten += 1
