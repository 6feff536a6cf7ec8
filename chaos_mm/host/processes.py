"""Pausing and killing a process of this user, each proven by what /proc says afterwards."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from chaos_mm.control.holds import Hold
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.host.guarded import Guarded
from chaos_mm.host.procfs import Identity, choose, command_of, identify, listeners, same_command
from chaos_mm.host.signals import await_state, send

__all__ = ["ChosenProcess", "HostProcesses", "resume_paused"]

_PROOF_SECONDS = 5.0
_LOOK_SECONDS = 0.1


class HostProcesses:
    """The processes of this user, under one hold."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
        return self._hold.sleep(seconds)

    def choose(self, *, pid: int, listens_on: int, command: str) -> "ChosenProcess":
        """The one process that all given words name. Raises NotInjectable."""
        return ChosenProcess(self._hold, choose(pid, listens_on, command), listens_on)


@dataclass(frozen=True)
class _Place:
    """What a process does that another one may do in its stead."""

    port: int
    command: str

    def taken_by(self) -> set[Identity]:
        """Who does it now."""
        pids = listeners(self.port) if self.port else same_command(self.command)
        return {who for pid in pids if (who := identify(pid)) is not None}

    def __str__(self) -> str:
        return f"listens on port {self.port}" if self.port else "has its command line"


class ChosenProcess:
    """One process of the machine."""

    def __init__(self, hold: Hold, who: Identity, port: int) -> None:
        self._hold, self._who, self.pid = hold, who, who.pid
        self._place = _Place(port, command_of(who.pid))
        self._before = frozenset({who})
        self._guard = Guarded(hold, {"kind": "resume", **who.to_json()})
        hold.lease.engine = {**hold.lease.engine, "process": who.to_json()}

    def pause(self) -> None:
        """SIGSTOP, proven by its state. Raises ChaosMMError."""
        self._guard.begin()
        if not send(self._who, signal.SIGSTOP):
            raise ChaosMMError(f"process {self.pid} ended before it could be paused")
        if not await_state(self._who, "T", _PROOF_SECONDS):
            raise ChaosMMError(f"process {self.pid} did not stop within {_PROOF_SECONDS:g} s")

    def resume(self) -> None:
        """SIGCONT, proven by its state. Raises ChaosMMError."""
        if not self._guard.begun:
            return
        found = _resume(self._who)
        self._guard.end()
        self._hold.undone({"resumed_processes": float(found), "gone_processes": float(not found)})

    def kill(self) -> Mapping[str, float]:
        """SIGKILL, proven by its absence. Raises ChaosMMError."""
        began = time.monotonic()
        self._before = frozenset({self._who, *self._place.taken_by()})
        if not send(self._who, signal.SIGKILL):
            raise ChaosMMError(f"process {self.pid} ended before it could be killed")
        if not await_state(self._who, "RSDTtIWPK", _PROOF_SECONDS, absent=True):
            raise ChaosMMError(f"process {self.pid} still lives {_PROOF_SECONDS:g} s after SIGKILL")
        return {"killed_processes": 1.0, "death_seconds": time.monotonic() - began}

    def await_replacement(self, seconds: float) -> None:
        """Wait until another process does what it did. Raises ChaosMMError when none does in time."""
        until = time.monotonic() + seconds
        while not (found := self._place.taken_by() - self._before):
            if time.monotonic() >= until:
                raise ChaosMMError(f"restart needed: no other process {self._place} {seconds:g} s after the lease")
            time.sleep(_LOOK_SECONDS)
        self._hold.undone({"replacement_pid": float(min(who.pid for who in found))})


def resume_paused(data: Mapping[str, object]) -> None:
    """Undo handler of a sweep: continue the process if it is the one that was paused. Raises ChaosMMError."""
    _resume(Identity.from_json(data))


def _resume(who: Identity) -> bool:
    """Whether it was there to be continued; gone is proof enough. Raises ChaosMMError."""
    if not send(who, signal.SIGCONT):
        return False
    if not await_state(who, "T", _PROOF_SECONDS, absent=True):
        raise ChaosMMError(f"process {who.pid} is still stopped after SIGCONT")
    return True
