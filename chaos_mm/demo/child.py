"""One process of the demo: started tethered, ready when its own first line on stdout says so."""

import contextlib
import json
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from chaos_mm.demo.tether import tethered

__all__ = ["Child", "Spec"]


@dataclass(frozen=True)
class Spec:
    """How to start a service.

    ``after`` are the services that must be up first. With ``spare`` the command is started with ``--standby``: it
    loads everything, says so, and listens only once it gets a line on stdin; one more waits in reserve.
    """

    name: str
    argv: tuple[str, ...]
    url: str
    after: tuple[str, ...] = ()
    spare: bool = False
    ready_within_seconds: float = 120.0


class Child:
    """A running (or ended) command of a Spec; what it writes goes to ``log``, but for the lines we wait for."""

    def __init__(self, spec: Spec, log: Path) -> None:
        self.ready: dict[str, Any] | None = None
        self.standing_by = False
        self._log = log.open("ab")
        argv = [*spec.argv, *(["--standby"] if spec.spare else [])]
        self._process = subprocess.Popen(
            tethered(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=log.parent
        )
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id; the tether becomes the command, so there is only one."""
        return self._process.pid

    def ended(self) -> str:
        """How it ended, in words; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def promote(self) -> None:
        """Let a command that stands by listen. One that is already gone is found by ``ended``."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def end(self, within_seconds: float) -> None:
        """Wait for it to end and, when it does not, kill it; then let go of its pipes and log."""
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            _close(pipe)

    def _read(self, stdout: IO[bytes]) -> None:
        for line in stdout:
            said = _json(line)
            if "ready" in said:
                self.ready = said
            elif "standby" in said:
                self.standing_by = True
            else:
                self._log.write(line)
                self._log.flush()


def _json(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):  # what could not be flushed was for a process that is gone
            pipe.close()
