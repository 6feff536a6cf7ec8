"""A change to another process that must not outlive its lease, whatever happens to this one: record, watchdog, change.

The order is the promise: the undo record is durable and the watchdog watches before anything is changed; at the end the
change is undone and proven, then the watchdog is told, then the record goes.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos_mm.control.holds import Hold
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.undo import UndoRecord

__all__ = ["Guarded"]

_WATCHDOG = Path(__file__).with_name("watchdog.py")
_READY_SECONDS = 10.0


class Guarded:
    """From ``begin`` to ``end`` the change ``what`` (kind and identity, as the watchdog takes it) is watched over."""

    def __init__(self, hold: Hold, what: Mapping[str, Any]) -> None:
        self._hold, self._what = hold, dict(what)
        self._record: UndoRecord | None = None
        self._dog: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether there is something to put back."""
        return self._record is not None

    def begin(self) -> None:
        """Write the record and set the watchdog. Raises ChaosMMError when it does not come up; then nothing is left."""
        record = self._hold.write(self._what["kind"], self._what)
        try:
            self._dog = self._start()
        except (OSError, ChaosMMError) as error:
            self._hold.done(record)
            raise ChaosMMError(f"no watchdog, so nothing is changed: {error}") from None
        self._record = record
        self._hold.each_renewal(self._tell_deadline)

    def end(self) -> None:
        """It was undone and proven: dismiss the watchdog and the record."""
        if self._record is None:
            return
        self._tell(b"done\n")
        if self._dog is not None and self._dog.stdin is not None:
            with self._lock:
                self._dog.stdin.close()
            self._dog.wait(_READY_SECONDS)
        self._hold.done(self._record)
        self._record = None

    def _start(self) -> "subprocess.Popen[bytes]":
        # -I -S: nothing of the user's environment or site can slow it down or break it.
        argv = [sys.executable, "-I", "-S", str(_WATCHDOG), json.dumps(self._what)]
        dog = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/")
        assert dog.stdin is not None and dog.stdout is not None
        os.set_blocking(dog.stdin.fileno(), False)  # a keepalive never waits for a watchdog that was stopped
        timer = threading.Timer(_READY_SECONDS, dog.kill)
        timer.start()
        ready = dog.stdout.readline()
        timer.cancel()
        dog.stdout.close()
        if ready != b"ready\n":
            dog.kill()
            dog.wait()
            raise ChaosMMError(f"it ended with status {dog.returncode}")
        return dog

    def _tell_deadline(self, deadline: float) -> None:
        self._tell(f"until {deadline!r}\n".encode())

    def _tell(self, line: bytes) -> None:
        with self._lock:
            if self._dog is None or self._dog.stdin is None or self._dog.stdin.closed:
                return
            try:
                os.write(self._dog.stdin.fileno(), line)
            except OSError:  # it is gone or stuck; the thread of the hold undoes all the same
                return
