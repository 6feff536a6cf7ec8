"""A fake NVML over the folder of the fake device: see torch.py beside it. ``mig`` and ``mps`` there are files too."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_DEVICE_MIG_ENABLE = 1


class NVMLError(Exception):
    """As nvidia-ml-py's."""


class NVMLError_NotSupported(NVMLError):
    """As nvidia-ml-py's."""


def _folder() -> Path:
    return Path(os.environ["FAKE_CUDA"])


def _lives(path: Path) -> bool:
    try:
        return Path(f"/proc/{path.name}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _held() -> dict[int, int]:
    return {int(p.name): int(p.read_text() or 0) for p in _folder().glob("[0-9]*") if _lives(p)}


def nvmlInit() -> None:
    """Ready."""


def nvmlShutdown() -> None:
    """Over."""


def nvmlDeviceGetCount() -> int:
    """One, when there is a folder."""
    return int((_folder() / "total").exists())


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """The device."""
    return index


def nvmlDeviceGetName(handle: int) -> str:
    """Says that it is none."""
    return "fake device"


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:
    """Bytes."""
    total, used = int((_folder() / "total").read_text()), sum(_held().values())
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetMigMode(handle: int) -> list[int]:
    """[current, pending], or not supported."""
    if not (_folder() / "mig").exists():
        raise NVMLError_NotSupported("Not Supported")
    return [int((_folder() / "mig").read_text())] * 2


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[Any]:
    """Whoever holds memory."""
    return [SimpleNamespace(pid=pid) for pid in _held()]


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[Any]:
    """Nobody draws."""
    raise NVMLError_NotSupported("Not Supported")


def nvmlDeviceGetMPSComputeRunningProcesses(handle: int) -> list[Any]:
    """Ids in the file ``mps``."""
    path = _folder() / "mps"
    return [SimpleNamespace(pid=int(word)) for word in path.read_text().split()] if path.exists() else []
