"""A process that dies."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.fault import Effect, Param, Target, fault
from chaos_mm.core.host import Command, ListensOn, Pid, Processes
from chaos_mm.core.rng import Rng


@fault(Target.PROCESS, effect=Effect.EXITS)
def process_kill(
    processes: Processes,
    rng: Rng,
    *,
    pid: Pid = 0,
    listens_on: ListensOn = 0,
    command: Command = "",
    replacement_seconds: Annotated[
        float, Param("how long after the lease another may take to serve in its place", ge=0, le=3600, unit="s")
    ] = 30.0,
) -> Iterator[Mapping[str, float]]:
    """Kill one process with SIGKILL, as the kernel does when memory runs out.

    Nothing brings it back from here: whoever watches over it must start another. The undo is proven when another
    process does what this one did, listening on the same port where ``listens_on`` named it, else having the same
    command line; without one by the end of ``replacement_seconds`` the lease says so, and the run did not restore.

    Published: a killed worker of an engine was noticed after 38 s without redundancy, a killed child of one never
    (NVIDIA Dynamo's fault tolerance tests); an API that says it is well for an hour after its engine died (vLLM issue
    39863). Exactly one process of this user must match; process 1, the host and its parents are refused.
    """
    process = processes.choose(pid=pid, listens_on=listens_on, command=command)
    figures = process.kill()
    try:
        yield figures
    finally:
        process.await_replacement(replacement_seconds)
