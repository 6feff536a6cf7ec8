"""An NVIDIA device as NVML sees it (nvidia-ml-py): memory, MIG, MPS, and whose processes are on it.

The distribution is nvidia-ml-py, its module pynvml; the distribution called pynvml is deprecated and only forwards.
NVML gives process ids of the machine's own namespace: inside a container they may be missing, or be no process here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chaos_mm.core.errors import MissingExtra, NotInjectable

__all__ = ["DeviceFacts", "absence", "devices", "facts"]


@dataclass(frozen=True)
class DeviceFacts:
    """``mig``: partitioned. ``mps_pids``: clients of a Multi-Process Service. ``pids``: processes with a context."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    mig: bool
    pids: tuple[int, ...]
    mps_pids: tuple[int, ...]


def absence() -> str:
    """Why there is no device here, as "no NVIDIA device: …"; empty when there is one."""
    try:
        return "" if devices() else "no NVIDIA device: NVML counts none"
    except NotInjectable as error:
        return str(error)


def devices() -> int:
    """How many there are. Raises NotInjectable "no NVIDIA device: …" where NVML cannot be asked."""
    with _nvml() as nvml:
        return int(nvml.nvmlDeviceGetCount())


def facts(index: int) -> DeviceFacts:
    """Everything about one device now. Raises NotInjectable."""
    with _nvml() as nvml:
        count = int(nvml.nvmlDeviceGetCount())
        if not 0 <= index < count:
            raise NotInjectable(f"no NVIDIA device {index}: there are {count}, counted from 0")
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = nvml.nvmlDeviceGetName(handle)
        return DeviceFacts(
            index,
            name.decode() if isinstance(name, bytes) else str(name),
            int(memory.total),
            int(memory.free),
            int(memory.used),
            _is_mig(nvml, handle),
            tuple(sorted({*_pids(nvml, handle, "Compute"), *_pids(nvml, handle, "Graphics")})),
            _pids(nvml, handle, "MPSCompute"),
        )


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml as nvml
    except ImportError:
        raise NotInjectable(f"no NVIDIA device: {MissingExtra.of('nvidia-ml-py', 'gpu')}") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NotInjectable(f"no NVIDIA device: {error}") from None
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise NotInjectable(f"the NVIDIA device cannot be asked: {error}") from None
    finally:
        nvml.nvmlShutdown()


def _is_mig(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
    except nvml.NVMLError_NotSupported:  # a device that cannot be partitioned
        return False


def _pids(nvml: Any, handle: Any, kind: str) -> tuple[int, ...]:
    try:
        found = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses")(handle)
    except nvml.NVMLError_NotSupported:
        return ()
    return tuple(sorted({int(one.pid) for one in found}))
