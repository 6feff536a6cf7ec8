"""Too little memory on the machine, or for one process."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from chaos_mm.core.fault import Param, Point, Target, fault
from chaos_mm.core.host import MIB, Command, HostMemory, ListensOn, Pid
from chaos_mm.core.rng import Rng


@fault(Target.MEMORY, points=(Point.HOST,))
def host_memory_stress(
    memory: HostMemory,
    rng: Rng,
    *,
    kind: Annotated[
        Literal["machine", "process"], Param("machine: fill memory to the floor; process: cap one process's own")
    ] = "machine",
    floor_mib: Annotated[float, Param("machine: what stays available at least", ge=64, le=4e6, unit="MiB")] = 1024.0,
    ramp_seconds: Annotated[float, Param("machine: evenly over this long", ge=0, le=3600, unit="s")] = 5.0,
    headroom_mib: Annotated[
        float, Param("process: what it may map beyond what it has mapped", ge=0, le=4e6, unit="MiB")
    ] = 256.0,
    pid: Pid = 0,
    listens_on: ListensOn = 0,
    command: Command = "",
) -> Iterator[Mapping[str, float]]:
    """Leave the machine, or one process, next to no memory.

    ``machine``: a child process takes memory and writes every page, until only the floor is available: MemAvailable of
    /proc/meminfo (proc(5)), or what is left below the limit of a control group around the host, whichever is less. It
    holds the floor: where others take, it gives back. It makes itself the first victim of the kernel's out-of-memory
    killer (oom_score_adj 1000), is killed when the lease ends, and dies with the host (PR_SET_PDEATHSIG). An engine in
    a control group of its own feels it only where the machine itself runs out.

    ``process``: the soft RLIMIT_AS of one process of this user is lowered to what it has mapped and the headroom
    (prlimit(2)), so that its next large allocation fails while nobody else notices; the old limit is put back, by a
    watchdog too where the host is killed.

    Memory of the host as the cause of an outage, with the device nearly idle: vLLM issues 35191, 12973, 15085; it shows
    as a killed container and not as a CUDA error. Reports bytes held, or mapped and allowed.
    """
    if kind == "machine":
        held = memory.fill(floor_bytes=int(floor_mib * MIB), ramp_seconds=ramp_seconds)
    else:
        headroom = int(headroom_mib * MIB)
        held = memory.limit(headroom_bytes=headroom, pid=pid, listens_on=listens_on, command=command)
    try:
        while not held.reached() and memory.sleep(0.05):
            pass
        yield held.figures()
    finally:
        held.release()
