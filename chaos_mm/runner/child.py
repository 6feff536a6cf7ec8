"""One ``chaos run`` as a child process: its lines and its events as they come, and its end."""

import contextlib
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["Child", "EventFile"]

_LAST_LINES_SECONDS = 1.0


class Child:
    """Started in a session of its own: what a terminal sends reaches it through us, once."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            list(argv),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """Its exit status (negative: the signal that killed it), None when it still runs after ``seconds``."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(_LAST_LINES_SECONDS)  # a grandchild may keep the pipe open: then what is there is all
        return status

    def lines(self) -> Iterator[str]:
        """What it wrote since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._lines.get_nowait()

    def send(self, number: int) -> None:
        """A signal; one that is gone already needs none."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def end(self, seconds: float) -> None:
        """SIGTERM, so that it releases its faults; SIGKILL when it has not ended within ``seconds``."""
        self.send(signal.SIGTERM)
        if self.wait(seconds) is None:
            self.kill()

    def _read(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._lines.put(line.rstrip("\n"))


class EventFile:
    """A growing events.jsonl. A line that is not whole yet is left for the next look; one that is no event is none."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[dict[str, Any]]:
        """The events written since the last call; none while there is no file."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line))]


def _event(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else {}
