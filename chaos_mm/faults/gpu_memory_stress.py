"""Too little memory on the device."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.fault import Param, Point, Target, fault
from chaos_mm.core.host import MIB, Command, GpuMemory, ListensOn, Pattern, Pid
from chaos_mm.core.rng import Rng


@fault(
    Target.MEMORY,
    points=(Point.HOST,),
    dose="share",
    presets={1: {"share": 0.5}, 2: {"share": 0.7}, 3: {"share": 0.85}, 4: {"share": 0.95}, 5: {"share": 1.0}},
)
def gpu_memory_stress(
    memory: GpuMemory,
    rng: Rng,
    *,
    share: Annotated[float, Param("how much of what is free to take at most", ge=0, le=1, unit="of free memory")] = 0.9,
    pattern: Annotated[Pattern, Param("fill and stay, spike, leak, or fragment")] = "fill",
    floor_mib: Annotated[float, Param("what stays free at least", ge=16, le=4e6, unit="MiB")] = 256.0,
    ramp_seconds: Annotated[float, Param("evenly over this long", ge=0, le=3600, unit="s")] = 5.0,
    leak_mib_per_second: Annotated[float, Param("leak: how fast", ge=0.01, le=1e6, unit="MiB/s")] = 64.0,
    period_seconds: Annotated[float, Param("spike: up and down once", ge=0.2, le=3600, unit="s")] = 2.0,
    block_mib: Annotated[float, Param("size of one allocation", ge=2, le=4096, unit="MiB")] = 64.0,
    device: Annotated[int, Param("index of the device, as NVML and CUDA count", ge=0, le=63)] = 0,
    shared: Annotated[bool, Param("strike though MIG, MPS or processes beside the engine share the device")] = False,
    pid: Pid = 0,
    listens_on: ListensOn = 0,
    command: Command = "",
) -> Iterator[Mapping[str, float]]:
    """Take device memory away from the engine, as a neighbour on the device or a leak does.

    A child process allocates through torch.cuda, one driver allocation a block and none cached, and is killed when the
    lease ends or the host dies. What it took is read back through NVML (nvidia-ml-py), and at the end that it is free
    again. An engine that reserves its memory at start, as vLLM does, feels only what it allocates beside that:
    activations of encoders, graphs, communication. Without a device, on one partitioned (MIG), shared through MPS, or
    with processes beside the one that ``pid``, ``listens_on`` and ``command`` name and its children, it is refused.

    Published: external co-tenants and growing encoder caches as causes of running out (vLLM issues 16570, 26863,
    EasyR1 11002); leaks over hours (sglang 8902, vLLM 28230); a neighbour of about 40 GB as NVSentinel and
    Dynamo plan it. Fragments are given back every other one; a driver that maps scattered pages may not mind, which
    ``largest_free_block_bytes`` shows. Reports bytes held and free.
    """
    memory.check(device=device, shared=shared, pid=pid, listens_on=listens_on, command=command)
    held = memory.hold(
        device=device,
        pattern=pattern,
        share=share,
        floor_bytes=int(floor_mib * MIB),
        ramp_seconds=ramp_seconds,
        rate_bytes=int(leak_mib_per_second * MIB),
        period_seconds=period_seconds,
        block_bytes=int(block_mib * MIB),
    )
    try:
        while not held.reached() and memory.sleep(0.05):
            pass
        yield held.figures()
    finally:
        held.release()
