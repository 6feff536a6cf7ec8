"""Memory of an NVIDIA device under one hold: checked and read back by NVML, held by a child through torch.cuda."""

import importlib.util
import time
from collections.abc import Mapping

from chaos_mm.control.holds import Hold
from chaos_mm.core.errors import ChaosMMError, MissingExtra, NotInjectable
from chaos_mm.host import nvml
from chaos_mm.host.holding import HeldMemory
from chaos_mm.host.procfs import choose, tree
from chaos_mm.host.schedule import Schedule

__all__ = ["DeviceMemory", "refusal"]

_BACK_SECONDS = 5.0  # the driver tears a context down after the process is reaped
_BACK_SHARE = 0.9  # of what was held; others may take some of it at once
_LOOK_SECONDS = 0.1


def refusal() -> str:
    """Why no device's memory can be held here; empty when it can."""
    missing = "" if importlib.util.find_spec("torch") else str(MissingExtra.of("torch", "agent"))
    return nvml.absence() or missing


class DeviceMemory:
    """What ``gpu_memory_stress`` is handed."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
        return self._hold.sleep(seconds)

    def check(self, *, device: int, shared: bool, pid: int, listens_on: int, command: str) -> None:
        """Refuse what is not one engine's own. Raises NotInjectable."""
        found = nvml.facts(device)
        self._hold.lease.engine = {**self._hold.lease.engine, "device": found.name}
        if shared:
            return
        if found.mig:
            raise NotInjectable(f"device {device} is partitioned (MIG), so its memory is not one engine's; {_SAY}")
        if found.mps_pids:
            raise NotInjectable(f"device {device} is shared through MPS by processes {_listed(found.mps_pids)}; {_SAY}")
        ours = tree(choose(pid, listens_on, command).pid) if pid or listens_on or command else set[int]()
        others = tuple(one for one in found.pids if one not in ours)
        if others:
            raise NotInjectable(
                f"device {device} is used by processes {_listed(others)} beside the chosen one; name the engine with "
                f"pid, listens_on or command, or {_SAY}"
            )

    def hold(
        self,
        *,
        device: int,
        pattern: str,
        share: float,
        floor_bytes: int,
        ramp_seconds: float,
        rate_bytes: int,
        period_seconds: float,
        block_bytes: int,
    ) -> HeldMemory:
        """Begin to hold. Raises NotInjectable when no more than the floor is free."""
        free = nvml.facts(device).free_bytes
        if free <= floor_bytes:
            raise NotInjectable(f"{free} bytes are free on device {device}, no more than the floor of {floor_bytes}")
        schedule = Schedule(pattern, share, floor_bytes, ramp_seconds, rate_bytes, period_seconds, block_bytes)

        def proof(figures: Mapping[str, float]) -> Mapping[str, float]:
            return _free_again(device, free, figures)

        return HeldMemory(self._hold, device, schedule, proof)


_SAY = "shared: true strikes all the same"


def _listed(pids: tuple[int, ...]) -> str:
    return ", ".join(map(str, pids))


def _free_again(device: int, before: int, figures: Mapping[str, float]) -> Mapping[str, float]:
    """Nine tenths of what was free before, or of what was free and held at last where that is less, by NVML.

    Raises ChaosMMError when they are not within five seconds.
    """
    while_held = figures.get("free_bytes", float(before))
    wanted = min(float(before), while_held + figures.get("held_bytes", 0.0)) * _BACK_SHARE
    until = time.monotonic() + _BACK_SECONDS
    while (free := nvml.facts(device).free_bytes) < wanted:
        if time.monotonic() > until:
            raise ChaosMMError(f"{free} bytes are free on device {device}; {wanted:.0f} were to be again")
        time.sleep(_LOOK_SECONDS)
    return {"device_free_bytes": float(free), "device_free_before_bytes": float(before)}
