"""What a holder allocates from: RAM by anonymous mappings, an NVIDIA device by torch.cuda."""

import contextlib
import ctypes
import mmap
import os
from pathlib import Path
from typing import Any, Protocol

from chaos_mm.host.available import available_bytes

__all__ = ["Allocator", "Device", "Ram", "largest_free_block"]


class Allocator(Protocol):
    """``take`` gives a handle, or None where there is no more; blocks are dropped by ``drop``."""

    def free(self) -> int:
        """Bytes that can still be taken."""

    def take(self, size: int) -> Any:
        """Allocate that many bytes, and have them backed by real memory."""

    def drop(self, block: Any) -> None:
        """Give one back to the kernel or the driver, now."""


class Ram:
    """Anonymous memory, every page of it written: untouched pages cost nothing, and zero pages could be merged."""

    def __init__(self) -> None:
        # The kernel's out-of-memory killer takes this process first, and not the service (proc(5), oom_score_adj).
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")

    def free(self) -> int:
        """Bytes."""
        return available_bytes()

    def take(self, size: int) -> Any:
        """A mapping, or None."""
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # fewer faults on the way up, where the kernel has huge pages to give
            block.madvise(mmap.MADV_HUGEPAGE)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(block)), 0x5A, size)
        return block

    def drop(self, block: Any) -> None:
        """Unmap it."""
        block.close()


class Device:
    """Memory of one NVIDIA device; each block is one allocation of the driver, none is cached.

    ``PYTORCH_NO_CUDA_MEMORY_CACHING=1`` must be set before CUDA starts (torch's notes on CUDA memory management).
    """

    def __init__(self, index: int) -> None:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        import torch

        self._torch, self._device = torch, torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        self._context = torch.empty(1, dtype=torch.uint8, device=self._device)  # the context's own share counts as ours

    def free(self) -> int:
        """Bytes, as cudaMemGetInfo says."""
        return int(self._torch.cuda.mem_get_info(self._device)[0])

    def take(self, size: int) -> Any:
        """A tensor, or None."""
        try:
            return self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
        except self._torch.OutOfMemoryError:
            return None

    def drop(self, block: Any) -> None:
        """Free it: the last reference goes, and nothing is cached."""
        block.set_()


def largest_free_block(allocator: Allocator, step: int = 2 << 20) -> int:
    """The most bytes that one allocation gets now, to within ``step``, by bisection; everything is given back."""
    low, high = 0, allocator.free() // step
    while low < high:
        middle = (low + high + 1) // 2
        block = allocator.take(middle * step)
        if block is None:
            high = middle - 1
        else:
            allocator.drop(block)
            low = middle
    return low * step
