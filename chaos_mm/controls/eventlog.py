"""What happened, one strict-JSON object a line, on disk as it happens.

Lines are written and fsynced by a thread of their own: a disk that stalls must never hold up a keepalive, a release or
the engine. What was written survives ``kill -9``; what was fsynced survives the machine.
"""

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from chaos_mm.controls.signals import deaf
from chaos_mm.controls.strict import strict

__all__ = ["EventLog"]

_MOST_WAITING = 10_000
_BATCH = 256
_NEWLINE = ord("\n")


class EventLog:
    """Appends events to a new file. ``began``: when, on ``clock``; the ``t`` of every event counts from there.

    ``write`` never blocks and never raises, and may be called from any thread and from a signal handler. At most 10,000
    events wait for the disk; further ones are dropped, counted, and told as the event ``dropped``.
    """

    def __init__(
        self,
        path: Path,
        scrub: Callable[[Any], Any] = strict,
        clock: Callable[[], float] = time.monotonic,
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        """Make the file. Raises OSError when that cannot be done or the file is there already.

        ``scrub`` makes strict JSON of an event's fields and removes from them what nobody may read.
        """
        self.path, self._scrub, self._clock, self._most = path, scrub, clock, most_waiting
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        self.began = clock()
        self._waiting: SimpleQueue[dict[str, Any] | None] = SimpleQueue()  # its put() is safe in a signal handler
        self._drops: deque[str] = deque(maxlen=1_000_000)
        self._closed = threading.Event()
        self._lost, self._trouble, self._torn = 0, "", False
        self._thread = threading.Thread(target=self._write_all, name="chaos-mm-events", daemon=True)
        self._thread.start()

    def write(self, event: str, **fields: Any) -> None:
        """Note an event with its fields, as of now; what they hold may change afterwards."""
        if self._closed.is_set():
            return
        if self._waiting.qsize() >= self._most:
            self._drops.append(event)
            return
        self._waiting.put(self._line(event, fields))

    def close(self, timeout: float = 2.0) -> str:
        """Write what waits, within ``timeout`` seconds; "" or what was not written, in words. Twice is once."""
        if not self._closed.is_set():
            self._closed.set()
            self._waiting.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            return f"{self.path}: the disk did not take the last {self._waiting.qsize()} events within {timeout:g} s"
        return f"{self.path}: {self._lost} events were not written: {self._trouble}" if self._lost else ""

    def _line(self, event: str, fields: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"at": now, "t": round(self._clock() - self.began, 3), "event": event}
        try:
            return {**head, **self._scrub(fields), **head}
        except Exception as error:  # another thread changes it, or it holds itself: the event itself must not be lost
            return {**head, "unreadable": type(error).__name__}

    def _write_all(self) -> None:
        deaf()
        done = False
        while not done:
            batch = self._next_batch()
            done = batch[-1] is None
            lines = [line for line in batch if line is not None]
            count = self._drop_count()
            if count:
                lines.append(self._line("dropped", {"count": count}))
            self._append(lines)
        os.close(self._file)

    def _next_batch(self) -> list[dict[str, Any] | None]:
        batch = [self._waiting.get()]
        with contextlib.suppress(Empty):
            while batch[-1] is not None and len(batch) < _BATCH:
                batch.append(self._waiting.get_nowait())
        return batch

    def _drop_count(self) -> int:
        count = 0
        with contextlib.suppress(IndexError):
            while True:
                self._drops.popleft()
                count += 1
        return count

    def _append(self, lines: list[dict[str, Any]]) -> None:
        text = b"".join(_strict_json(line) + b"\n" for line in lines)
        if not text:
            return
        try:
            self._write_whole(b"\n" + text if self._torn else text)  # a torn line must not swallow the next one
            os.fsync(self._file)
        except OSError as error:
            self._lost, self._trouble = self._lost + len(lines), error.strerror or str(error)

    def _write_whole(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            written = os.write(self._file, rest)
            self._torn = rest[written - 1] != _NEWLINE
            rest = rest[written:]


def _strict_json(line: dict[str, Any]) -> bytes:
    try:
        return json.dumps(line, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:  # a scrubber of somebody else's that lets through what JSON cannot hold
        head = {key: line[key] for key in ("at", "t", "event")}
        return json.dumps({**head, "unreadable": type(error).__name__}).encode()
