"""A fake torch with one fake device, for where there is none: as much of torch.cuda as our code uses.

The device is a folder, FAKE_CUDA: ``total`` holds its bytes, and each process a file named by its id with what it
holds. A process that is gone holds nothing, as a driver sees to it.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_FOLDER = Path(os.environ["FAKE_CUDA"])
_mine = 0
uint8 = "uint8"


class OutOfMemoryError(RuntimeError):
    """As torch's."""


def _used() -> int:
    return sum(int(p.read_text() or 0) for p in _FOLDER.glob("[0-9]*") if Path(f"/proc/{p.name}").exists())


def _free() -> int:
    return int((_FOLDER / "total").read_text()) - _used()


def _write() -> None:
    part = _FOLDER / f"part-{os.getpid()}"
    part.write_text(str(_mine))
    part.replace(_FOLDER / str(os.getpid()))


class _Tensor:
    def __init__(self, size: int) -> None:
        global _mine
        if size > _free():
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self._size = size
        _mine += size
        _write()

    def set_(self) -> None:
        global _mine
        _mine, self._size = _mine - self._size, 0
        _write()


def device(kind: str, index: int) -> tuple[str, int]:
    """A device."""
    return kind, index


def empty(size: int, dtype: Any, device: Any) -> _Tensor:
    """An allocation. Each is one of the driver's only where caching is off, so that must be asked for."""
    assert os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1"
    return _Tensor(size)


cuda = SimpleNamespace(
    set_device=lambda device: None,
    mem_get_info=lambda device: (_free(), int((_FOLDER / "total").read_text())),
)
