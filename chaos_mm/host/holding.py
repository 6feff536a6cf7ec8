"""The host's side of a holder: start it, watch it, kill it, and prove that it is gone."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from chaos_mm.control.holds import Hold
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.undo import UndoRecord
from chaos_mm.host.procfs import Identity, identify
from chaos_mm.host.schedule import Schedule
from chaos_mm.host.signals import await_state, send

__all__ = ["HeldMemory", "kill_holder"]

_READY_SECONDS = 60.0  # torch and a CUDA context take their time on a cold disk
_GONE_SECONDS = 10.0
_ALIVE = "RSDTtIWPK"
_TAIL = 400


class HeldMemory:
    """Memory held by a child process. ``proof(figures)`` is asked once it is gone: raises ChaosMMError where what it
    held has not come back, else gives figures for the undo.
    """

    def __init__(
        self,
        hold: Hold,
        device: int,
        schedule: Schedule,
        proof: Callable[[Mapping[str, float]], Mapping[str, float]],
    ) -> None:
        self._hold, self._proof = hold, proof
        self._told: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._record: UndoRecord | None = None
        what = json.dumps({"parent": os.getpid(), "device": device, "schedule": schedule.to_json()})
        # The death signal belongs to the thread that starts it: this one, which lives as long as the hold.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "chaos_mm.host.holder", what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self._begin()
        except BaseException:
            self.release()
            raise

    def reached(self) -> bool:
        """Whether the level stands. Raises ChaosMMError when the holder ended."""
        if self._child.poll() is not None:
            raise ChaosMMError(f"the process that holds the memory ended {self._how_it_ended()}")
        return bool(self._told.get("begun"))

    def figures(self) -> Mapping[str, float]:
        """Bytes held, the most that were, bytes free; of fragments the largest block that can be had."""
        return {name: float(value) for name, value in (self._told.get("figures") or {}).items()}

    def release(self) -> None:
        """Kill it; its memory goes with it. Raises ChaosMMError when it does not go, or nothing came back."""
        figures, ended_early = dict(self.figures()), self._child.poll() is not None
        self._child.kill()
        try:
            self._child.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            raise ChaosMMError(
                f"process {self._child.pid} still holds memory, {_GONE_SECONDS:g} s after SIGKILL"
            ) from None
        self._reader.join(_GONE_SECONDS)
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            with self._lock:
                if stream is not None:
                    stream.close()
        self._hold.undone({"ended_early_processes": float(ended_early), **figures})
        self._hold.undone(self._proof(figures))
        if self._record is not None:
            self._hold.done(self._record)
            self._record = None

    def _begin(self) -> None:
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)  # a keepalive never waits for a holder that was stopped
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, name="chaos-mm-holder", daemon=True)
        self._reader.start()
        until = time.monotonic() + _READY_SECONDS
        while not self._ready.wait(0.02):
            if self._child.poll() is not None:
                raise ChaosMMError(f"the process that shall hold the memory ended {self._how_it_ended()}")
            if not self._hold.live or time.monotonic() > until:
                raise ChaosMMError("the process that shall hold the memory was not ready in time")
        who = identify(self._child.pid)
        if who is None:
            raise ChaosMMError(f"the process that shall hold the memory ended {self._how_it_ended()}")
        self._record = self._hold.write("holder", who.to_json())
        self._tell("go")
        self._hold.each_renewal(lambda deadline: self._tell(f"until {deadline!r}"))

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            told = json.loads(line)
            if told.get("ready"):
                self._ready.set()
            else:
                self._told = told

    def _tell(self, line: str) -> None:
        assert self._child.stdin is not None
        with self._lock:
            try:
                os.write(self._child.stdin.fileno(), f"{line}\n".encode())
            except (OSError, ValueError):  # gone or stopped, which ``reached`` and ``release`` will see
                return

    def _how_it_ended(self) -> str:
        status = self._child.wait(_GONE_SECONDS)
        said = (self._child.stderr.read() if self._child.stderr is not None else "").strip().splitlines()
        why = f": {said[-1][:_TAIL]}" if said else ""
        return f"by signal {-status}{why}" if status < 0 else f"with status {status}{why}"


def kill_holder(data: Mapping[str, Any]) -> None:
    """Undo handler of a sweep: kill a holder that outlived its host. Raises ChaosMMError."""
    who = Identity.from_json(data)
    if who.lives and send(who, signal.SIGKILL) and not await_state(who, _ALIVE, _GONE_SECONDS, absent=True):
        raise ChaosMMError(f"process {who.pid} still holds memory, {_GONE_SECONDS:g} s after SIGKILL")
