"""Memory of this machine under one hold: filled by a child process, or one process's address space capped."""

import resource
from collections.abc import Mapping
from pathlib import Path

from chaos_mm.control.holds import Hold
from chaos_mm.core.errors import ChaosMMError, NotInjectable
from chaos_mm.host.available import available_bytes, meminfo_bytes
from chaos_mm.host.guarded import Guarded
from chaos_mm.host.holding import HeldMemory
from chaos_mm.host.procfs import Identity, choose
from chaos_mm.host.schedule import Schedule

__all__ = ["CappedProcess", "MachineMemory", "lift_cap"]


class MachineMemory:
    """What ``host_memory_stress`` is handed."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
        return self._hold.sleep(seconds)

    def available(self) -> int:
        """Bytes."""
        return available_bytes()

    def fill(self, *, floor_bytes: int, ramp_seconds: float) -> HeldMemory:
        """Down to the floor, by a child. Raises NotInjectable when there is no more than that already."""
        found = available_bytes()
        if found <= floor_bytes:
            raise NotInjectable(
                f"{found} bytes are available, no more than the floor of {floor_bytes}: nothing to take"
            )
        schedule = Schedule(floor_bytes=floor_bytes, ramp_seconds=ramp_seconds)
        return HeldMemory(self._hold, -1, schedule, _available_again)

    def limit(self, *, headroom_bytes: int, pid: int, listens_on: int, command: str) -> "CappedProcess":
        """Cap one process. Raises NotInjectable."""
        capped = CappedProcess(self._hold, choose(pid, listens_on, command))
        try:
            capped.cap(headroom_bytes)
        except BaseException:
            capped.release()
            raise
        return capped


class CappedProcess:
    """A process whose soft RLIMIT_AS stands lower than it did; the hard one stays, so that no privilege is needed to
    put it back (prlimit(2)).
    """

    def __init__(self, hold: Hold, who: Identity) -> None:
        self._hold, self._who = hold, who
        self._old = _limits(who)
        soft, hard = self._old
        self._guard = Guarded(hold, {"kind": "limit", "soft": soft, "hard": hard, **who.to_json()})
        self._cap = self._mapped = 0
        hold.lease.engine = {**hold.lease.engine, "process": who.to_json()}

    def cap(self, headroom_bytes: int) -> None:
        """Set it, and read it back. Raises ChaosMMError, NotInjectable where a tighter one stands."""
        self._mapped = _mapped_bytes(self._who)
        self._cap = self._mapped + headroom_bytes
        soft, hard = self._old
        if soft != resource.RLIM_INFINITY and soft <= self._cap:
            raise NotInjectable(f"process {self._who.pid} may map {soft} bytes already, no more than {self._cap}")
        self._guard.begin()
        _set_limits(self._who, self._cap, hard)

    def reached(self) -> bool:
        """Whether the cap stands. Raises ChaosMMError when the process is gone."""
        return _limits(self._who)[0] == self._cap

    def figures(self) -> Mapping[str, float]:
        """Bytes the process had mapped, and may map."""
        return {"mapped_bytes": float(self._mapped), "ceiling_bytes": float(self._cap)}

    def release(self) -> None:
        """The old limits again, read back; a process that is gone has none. Raises ChaosMMError."""
        if not self._guard.begun:
            return
        if self._who.lives:
            _set_limits(self._who, *self._old)
            self._hold.undone({"restored_limits": 1.0})
        self._guard.end()


def lift_cap(data: Mapping[str, object]) -> None:
    """Undo handler of a sweep. Raises ChaosMMError."""
    who = Identity.from_json(data)
    if who.lives:
        _set_limits(who, int(str(data["soft"])), int(str(data["hard"])))


def _limits(who: Identity) -> tuple[int, int]:
    if not who.lives:
        raise ChaosMMError(f"process {who.pid} has ended")
    try:
        return resource.prlimit(who.pid, resource.RLIMIT_AS)
    except OSError as error:
        raise ChaosMMError(f"the limits of process {who.pid} cannot be read: {error.strerror}") from None


def _set_limits(who: Identity, soft: int, hard: int) -> None:
    try:
        resource.prlimit(who.pid, resource.RLIMIT_AS, (soft, hard))
    except (OSError, ValueError) as error:
        raise ChaosMMError(f"the limits of process {who.pid} cannot be set: {error}") from None
    if (found := _limits(who)) != (soft, hard):
        raise ChaosMMError(f"process {who.pid} has the limits {found}, not {(soft, hard)}")


def _mapped_bytes(who: Identity) -> int:
    """VmSize, of which RLIMIT_AS is the limit."""
    try:
        return meminfo_bytes("VmSize", Path(f"/proc/{who.pid}/status"))
    except (OSError, LookupError):
        raise ChaosMMError(f"process {who.pid} has ended") from None


def _available_again(figures: Mapping[str, float]) -> Mapping[str, float]:
    """The holder is gone, and with it its memory: what is available now is a figure, since others come and go."""
    return {"available_bytes": float(available_bytes())}
