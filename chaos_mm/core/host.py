"""What the host, a process beside the engine, hands to a fault that holds something: memory, a device, a process.

The first parameter of a hold at the host is annotated with one of these protocols, and by that annotation alone the
host knows what to hand over. Each of them waits with the lease: ``sleep`` returns early, and False, once it has ended.
A fault that has begun a hold calls its ``release`` in ``finally``; ``release`` raises where the undo is not proven.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

from chaos_mm.core.params import Param

__all__ = [
    "MIB",
    "Command",
    "GpuMemory",
    "Held",
    "HostMemory",
    "ListensOn",
    "Pattern",
    "Pid",
    "Process",
    "Processes",
    "Waiting",
]

MIB = 1 << 20
"""Bytes; sizes are parameters in MiB and figures in bytes."""

Pattern = Literal["fill", "spike", "leak", "fragment"]
"""fill: up to the level and stay · spike: up and down again, over and over · leak: up at a steady rate ·
fragment: up to the level in small blocks, then every other one given back.
"""

Pid = Annotated[
    int, Param("the process of that id; 0: chosen by the other words. All words given must hold", ge=0, le=4194304.0)
]
ListensOn = Annotated[int, Param("the process that listens on this TCP port of this machine; 0: any", ge=0, le=65535)]
Command = Annotated[str, Param("the process whose command line holds this text; empty: any")]


class Waiting(Protocol):
    """Time under a lease."""

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives, False (at once) when it has ended."""


class Held(Protocol):
    """Something that is being held."""

    def reached(self) -> bool:
        """Whether the level that was asked for is there. Raises ChaosMMError when it can no longer come to be."""

    def figures(self) -> Mapping[str, float]:
        """What is held now: names with units, finite."""

    def release(self) -> None:
        """Let go, and prove it; its figures become those of the lease's undo. Raises ChaosMMError where unproven."""


class HostMemory(Waiting, Protocol):
    """Memory of this machine, or of this control group where that is tighter."""

    def available(self) -> int:
        """Bytes that could still be allocated without swapping: the least of MemAvailable and every cgroup's rest."""

    def fill(self, *, floor_bytes: int, ramp_seconds: float) -> Held:
        """Have a child process allocate until ``floor_bytes`` are available, evenly over ``ramp_seconds``.

        It never goes below the floor, and gives back when others take. Raises NotInjectable when no more than the floor
        is available already.
        """

    def limit(self, *, headroom_bytes: int, pid: int, listens_on: int, command: str) -> Held:
        """Let one process map no more than ``headroom_bytes`` above what it has mapped (its soft RLIMIT_AS).

        Raises NotInjectable when not exactly one process is named, or it must not be touched.
        """


class GpuMemory(Waiting, Protocol):
    """Memory of an NVIDIA device, seen through NVML, held by a child process through torch.cuda."""

    def check(self, *, device: int, shared: bool, pid: int, listens_on: int, command: str) -> None:
        """Refuse a device that is not the chosen process's alone: MIG, MPS, or processes beside it, listed.

        Raises NotInjectable, unless ``shared``; always when there is no such device.
        """

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
    ) -> Held:
        """Have a child process allocate up to ``share`` of what is free now, leaving at least ``floor_bytes``.

        ``rate_bytes``: per second, of a leak; ``period_seconds``: of a spike; ``block_bytes``: of fragments.
        """


class Process(Protocol):
    """One process: the same id, start time and boot, or none."""

    pid: int

    def pause(self) -> None:
        """SIGSTOP, proven by its state. Raises ChaosMMError."""

    def resume(self) -> None:
        """SIGCONT, proven by its state; nothing when it was not paused here, or is gone. Raises ChaosMMError."""

    def kill(self) -> Mapping[str, float]:
        """SIGKILL, proven by its absence. Raises ChaosMMError."""

    def await_replacement(self, seconds: float) -> None:
        """Wait until another process does what this one did: listens there, or has its command line.

        Raises ChaosMMError when none does within ``seconds``.
        """


class Processes(Waiting, Protocol):
    """The processes of this user on this machine."""

    def choose(self, *, pid: int, listens_on: int, command: str) -> Process:
        """The one process that all given words name.

        Raises NotInjectable when none or several are named, naming them; and for process 1, the host itself, its
        parents, and processes of others.
        """
