"""Memory of the process that serves: a ceiling, and allocations that fail at a named site with torch's own error."""

import resource
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.meant import meant
from chaos_mm.agent.who import OWN_PREFIX
from chaos_mm.core.errors import InvalidParams

__all__ = ["SITES", "AllocationSites", "ProcessMemory", "memory_facts"]
SITES: Final = ("attention", "kv_growth", "encoder")
_PAGE: Final = resource.getpagesize()


class AllocationSites:
    """Which allocations shall fail: asked at each site while the gate is open."""

    def __init__(self) -> None:
        self._failing: list[tuple[Armed, str, list[int]]] = []
        self._lock = threading.Lock()

    def add(self, armed: Armed, site: str, times: int) -> None:
        """Let the next ``times`` at a site fail. Raises InvalidParams for a site that is none."""
        if site not in SITES:
            raise InvalidParams(f"site={site[:60]!r} is not one of {', '.join(SITES)}")
        with self._lock:
            self._failing.append((armed, site, [times]))

    def drop(self, armed: Armed) -> None:
        """None of this lease's fails any more."""
        with self._lock:
            self._failing = [entry for entry in self._failing if entry[0] is not armed]

    def check(self, site: str, where: str, request: str) -> None:
        """Raises torch's OutOfMemoryError where it is this allocation's turn to fail."""
        if not self._failing or request.startswith(OWN_PREFIX):
            return
        with self._lock:
            for armed, name, left in self._failing:
                if name == site and left[0] > 0 and armed.live:
                    left[0] -= 1
                    armed.count(request, where, {"failed_allocations": 1.0})
                    raise meant(_out_of_memory(site))


def _out_of_memory(site: str) -> Exception:
    import torch

    error: Exception = torch.OutOfMemoryError(f"out of memory at {site} (injected by chaos_mm; nothing was allocated)")
    return error


class ProcessMemory:
    """``EngineMemory`` of this process for one lease; the ceiling is the address space's on the CPU."""

    def __init__(self, armed: Armed, sites: AllocationSites, device: str) -> None:
        self.device = device
        self._armed, self._sites = armed, sites
        self._before: tuple[int, int] | None = None

    def used(self) -> int:
        """Bytes held: resident on the CPU, reserved by torch on a CUDA device."""
        return _resident() if self.device == "cpu" else _cuda_used(self.device)

    def set_ceiling(self, headroom_bytes: int) -> int:
        """No more than this above what is mapped now (CPU: RLIMIT_AS) or reserved (CUDA); the ceiling in bytes."""
        if self.device != "cpu":
            return _set_cuda_ceiling(self.device, headroom_bytes)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = _mapped() + headroom_bytes
        ceiling = ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
        self._before = (soft, hard)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, hard))
        return ceiling

    def lift_ceiling(self) -> None:
        """The limit that stood there before."""
        if self.device != "cpu":
            _lift_cuda_ceiling(self.device)
        elif self._before is not None:
            resource.setrlimit(resource.RLIMIT_AS, self._before)
            self._before = None

    def fail_at(self, site: str, times: int) -> None:
        """Let the next ``times`` allocations at attention, kv_growth or encoder fail; the first that does is a hit."""
        self._armed.later = True
        self._sites.add(self._armed, site, times)

    def stop_failing(self) -> None:
        """From now on none does."""
        self._sites.drop(self._armed)

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
        self._armed.wait(seconds)
        return self._armed.live


def memory_facts(device: str) -> Mapping[str, Any]:
    """What ``GET /agent`` says of this process's memory; on a CPU no free device memory is claimed."""
    if device == "cpu":
        return {"device": "cpu", "used_bytes": _resident()}
    import torch

    free, total = torch.cuda.mem_get_info(device)
    used = total - free
    return {"device": device, "used_bytes": used, "free_bytes": free, "utilisation_ratio": used / total}


def _statm() -> list[int]:
    return [int(word) * _PAGE for word in Path("/proc/self/statm").read_text(encoding="ascii").split()]


def _mapped() -> int:
    return _statm()[0]


def _resident() -> int:
    return _statm()[1]


def _cuda_used(device: str) -> int:
    import torch

    return int(torch.cuda.memory_reserved(device))


def _set_cuda_ceiling(device: str, headroom_bytes: int) -> int:
    import torch

    total = torch.cuda.mem_get_info(device)[1]
    ceiling = min(total, _cuda_used(device) + headroom_bytes)
    torch.cuda.set_per_process_memory_fraction(ceiling / total, device)
    return int(ceiling)


def _lift_cuda_ceiling(device: str) -> None:
    import torch

    torch.cuda.set_per_process_memory_fraction(1.0, device)
