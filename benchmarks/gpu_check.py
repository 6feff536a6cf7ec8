"""``benchmarks/gpu_check.sh``: the CUDA paths on one NVIDIA GPU, one table, five minutes at most.

Memory rows put real leases of ``gpu_memory_stress`` at a host's book in this process and judge them by NVML; attention
rows hold up a real call of torch's flash attention by the faults themselves and judge it by the clock, by the kernels
that the profiler saw, and by its output. Without a GPU nothing is run, and that is said.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_mm import faults
from chaos_mm.control.holds import Holds
from chaos_mm.core.fault import Fault, Point
from chaos_mm.core.host import MIB
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.core.rng import Rng
from chaos_mm.core.undo import UndoLog
from chaos_mm.host import gpu, nvml
from chaos_mm.host.command import KINDS

NO_GPU_EXIT = 3
_OWNER = "gpu-check"
_TOLERANCE_BYTES = 64 * MIB  # what a driver keeps or gives back by itself between two looks
_STAND_SECONDS = 60.0
# Whether a process of its own gets so many bytes of the device: exit 0 yes, 7 the driver's out-of-memory error.
_TAKER = """
import os, sys
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
import torch
try:
    torch.empty(int(sys.argv[1]), dtype=torch.uint8, device=torch.device("cuda", int(sys.argv[2])))
except torch.OutOfMemoryError:
    sys.exit(7)
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    ok: bool
    told: str


class Host:
    """A host's lease book in this process, over one device."""

    def __init__(self, folder: Path, device: int, shared: bool) -> None:
        self.device, self._shared = device, shared
        self._holds = Holds(KINDS, UndoLog(folder / "undo"))
        limits = Limits(allow_live=True, max_rate=1.0)
        self._book = LeaseBook(faults.catalogue(), point=Point.HOST, limits=limits, actuator=self._holds)

    def free(self) -> int:
        """Bytes, by NVML."""
        return nvml.facts(self.device).free_bytes

    @contextmanager
    def stressed(self, **params: Any) -> Iterator[Lease]:
        """``gpu_memory_stress`` at work; afterwards its undo is through. Raises RuntimeError when it does not stand."""
        full = {"device": self.device, "shared": self._shared, "ramp_seconds": 0.0, **params}
        body = {"owner": _OWNER, "fault": "gpu_memory_stress", "params": full}
        lease = self._book.put("check", {**body, "ttl_seconds": 120, "keepalive_seconds": 120})
        try:
            until = time.monotonic() + _STAND_SECONDS
            while not (lease.applied or lease.errored) and time.monotonic() < until:
                time.sleep(0.02)
            if not lease.applied:
                raise RuntimeError(lease.undo.reason if lease.undo else f"it did not stand in {_STAND_SECONDS:g} s")
            yield lease
        finally:
            self._book.release("check", _OWNER)
            self._holds.wait(_STAND_SECONDS)


def memory_rows(host: Host) -> Iterator[Row]:
    """Fill, spike, fragment, out of memory, restore."""
    start = host.free()
    yield _checked("fill half of what is free", lambda: _fill(host))
    yield _checked("spike, three periods", lambda: _spike(host))
    yield _checked("fragment", lambda: _fragment(host))
    yield _checked("out of memory for a neighbour", lambda: _out_of_memory(host))
    yield _checked("restore: all of it is free again", lambda: _restored(host, start))


def _checked(name: str, check: Callable[[], tuple[bool, str]]) -> Row:
    try:
        return Row(name, *check())
    except Exception as error:  # the other rows are wanted all the same
        return Row(name, False, f"{type(error).__name__}: {error}")


def _fill(host: Host) -> tuple[bool, str]:
    before, began = host.free(), time.monotonic()
    with host.stressed(share=0.5) as lease:
        seconds, left = time.monotonic() - began, host.free()
    proven = bool(lease.undo and lease.undo.proven)
    taken = before - left
    told = (
        f"{taken / MIB:.0f} of {before / MIB:.0f} MiB by NVML in {seconds:.1f} s, undo {'' if proven else 'NOT '}proven"
    )
    return proven and abs(taken - before / 2) < 0.05 * before, told


def _spike(host: Host) -> tuple[bool, str]:
    before = host.free()
    with host.stressed(share=0.5, pattern="spike", period_seconds=2.0):
        seen = [host.free() for _ in range(60) if time.sleep(0.1) is None]
    low, high = min(seen), max(seen)
    return high - low > 0.3 * before, f"free between {low / MIB:.0f} and {high / MIB:.0f} MiB"


def _fragment(host: Host) -> tuple[bool, str]:
    with host.stressed(share=0.9, pattern="fragment", block_mib=64.0) as lease:
        free = host.free()
    largest = lease.achieved["largest_free_block_bytes"].total
    return 0 < largest <= free + _TOLERANCE_BYTES, f"{free / MIB:.0f} MiB free, largest block {largest / MIB:.0f} MiB"


def _out_of_memory(host: Host) -> tuple[bool, str]:
    wanted = host.free() // 2
    with host.stressed(share=1.0, floor_mib=1024.0):
        under = _take(wanted, host.device)
    after = _take(wanted, host.device)
    words = {0: "got it", 7: "out of memory"}
    told = f"{wanted / MIB:.0f} MiB under the fault: {words.get(under, under)}; after it: {words.get(after, after)}"
    return (under, after) == (7, 0), told


def _take(size: int, device: int) -> int:
    argv = [sys.executable, "-c", _TAKER, str(size), str(device)]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode


def _restored(host: Host, start: int) -> tuple[bool, str]:
    now = host.free()
    return abs(now - start) <= _TOLERANCE_BYTES, f"{now / MIB:.0f} MiB free, {start / MIB:.0f} at the start"


@dataclass
class FlashCall:
    """A real call of flash attention as the attention faults see one (``chaos_mm.core.engine.AttentionCall``)."""

    ended: threading.Event
    layer: int = 0
    layers: int = 1
    heads: int = 8
    head_dim: int = 64
    output_index: int = 1
    backend: str = "flash"
    requests: tuple[str, ...] = ("check",)
    batch_wide: bool = True
    survives_raise: bool = True
    state: dict[str, Any] = field(default_factory=dict)

    def sleep(self, seconds: float) -> float:
        """Hold the call up until the lease has ended at the latest."""
        began = time.monotonic()
        self.ended.wait(seconds)
        return time.monotonic() - began

    def edit_output(self, change: Callable[[Any], Any]) -> None:
        """Neither of the faults here touches the output."""
        raise AssertionError("no output is edited here")


class Flash:
    """torch's flash attention on a device, before which a fault may stand."""

    def __init__(self, torch: Any, device: str, dtype: Any, tokens: int = 1024) -> None:
        self._torch, self.device = torch, device
        generator = torch.Generator(device="cpu").manual_seed(7)
        shape = (1, 8, tokens, 64)
        self._qkv = [torch.randn(shape, generator=generator).to(device=device, dtype=dtype) for _ in range(3)]

    def run(self, stand_in: Callable[[], None] = lambda: None) -> tuple[Any, float]:
        """(output, seconds) of one call, held up by ``stand_in`` before its launch."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        began = time.monotonic()
        stand_in()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), self._torch.no_grad():
            output = self._torch.nn.functional.scaled_dot_product_attention(*self._qkv)
        if self.device != "cpu":
            self._torch.cuda.synchronize()
        return output, time.monotonic() - began

    def kernels(self) -> list[str]:
        """Names of what really ran, by torch's profiler."""
        activity = self._torch.profiler.ProfilerActivity
        kind = activity.CPU if self.device == "cpu" else activity.CUDA
        with self._torch.profiler.profile(activities=[kind]) as seen:
            self.run()
        return [event.key for event in seen.key_averages()]


def attention_rows(flash: Flash) -> Iterator[Row]:
    """That flash attention is what runs, then delay and hang of its call, with the same output each time."""
    flash.run()
    yield _checked("flash attention is what runs", lambda: _is_flash(flash))
    yield _checked("delay of 50 ms before a call", lambda: _delayed(flash, faults.get("attention_delay")))
    yield _checked("hang until the release", lambda: _hung(flash, faults.get("attention_hang")))


def _is_flash(flash: Flash) -> tuple[bool, str]:
    found = [name for name in flash.kernels() if "flash" in name.lower()]
    return bool(found), ", ".join(found)[:100] or "no kernel of that name was seen"


def _delayed(flash: Flash, fault: Fault) -> tuple[bool, str]:
    clean, fast = flash.run()
    call = FlashCall(threading.Event())
    hurt, slow = flash.run(lambda: _strike(fault, call, seconds=0.05))
    same, _ = flash.run()
    equal = _equal(clean, hurt) and _equal(clean, same)
    return (
        equal and 0.045 < slow - fast < 0.5,
        f"{fast * 1e3:.2f} ms, then {slow * 1e3:.1f} ms; output the same: {equal}",
    )


def _hung(flash: Flash, fault: Fault) -> tuple[bool, str]:
    clean, _ = flash.run()
    call, answers = FlashCall(threading.Event()), list[Any]()
    thread = threading.Thread(target=lambda: answers.append(flash.run(lambda: _strike(fault, call))[0]))
    thread.start()
    thread.join(1.0)
    hung, began = thread.is_alive(), time.monotonic()
    call.ended.set()
    thread.join(10.0)
    freed = time.monotonic() - began
    equal = bool(answers) and _equal(clean, answers[0])
    return hung and equal, f"hung 1 s: {hung}; back {freed * 1e3:.0f} ms after the release; output the same: {equal}"


def _strike(fault: Fault, call: FlashCall, **params: Any) -> None:
    fault.apply(call, Rng.derive(7, "check", "0", fault.name), **fault.bind(params))


def _equal(one: Any, other: Any) -> bool:
    return bool((one == other).all())


def table(rows: Mapping[str, str], checks: list[Row]) -> str:
    """What was run on, and every check, as Markdown."""
    head = [f"{name}: {told}" for name, told in rows.items()]
    lines = ["| check | ok | figures |", "|---|---|---|"]
    lines += [f"| {row.name} | {'ok' if row.ok else 'NOT OK'} | {row.told} |" for row in checks]
    return "\n".join([*head, "", *lines])


def _facts(torch: Any, device: int) -> dict[str, str]:
    found = nvml.facts(device)
    memory = f"{found.total_bytes / MIB:.0f} MiB, {found.free_bytes / MIB:.0f} MiB free"
    return {"device": found.name, "memory": memory, "torch": f"{torch.__version__}, CUDA {torch.version.cuda}"}


def main(arguments: list[str] | None = None) -> int:
    """Run every check; 0 when all are ok, 1 when one is not, 3 without a GPU."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_check.sh", description=__doc__)
    parser.add_argument("--device", type=int, default=0, help="index of the device")
    parser.add_argument("--shared", action="store_true", help="though other processes use the device")
    given = parser.parse_args(arguments)
    if why := gpu.refusal():
        print(f"gpu_check: nothing was run: {why}", file=sys.stderr)
        return NO_GPU_EXIT
    import torch

    if not torch.cuda.is_available():
        print(f"gpu_check: nothing was run: torch {torch.__version__} has no CUDA device", file=sys.stderr)
        return NO_GPU_EXIT
    with tempfile.TemporaryDirectory() as folder:
        checks = list(memory_rows(Host(Path(folder), given.device, given.shared)))
    # CUDA starts in this process only now: until here it would have been a stranger on the device.
    checks += attention_rows(Flash(torch, f"cuda:{given.device}", torch.bfloat16))
    print(table(_facts(torch, given.device), checks))
    return 0 if all(row.ok for row in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
