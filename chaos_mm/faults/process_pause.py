"""A process that stands still."""

from collections.abc import Iterator, Mapping

from chaos_mm.core.fault import Target, fault
from chaos_mm.core.host import Command, ListensOn, Pid, Processes
from chaos_mm.core.rng import Rng


@fault(Target.PROCESS)
def process_pause(
    processes: Processes, rng: Rng, *, pid: Pid = 0, listens_on: ListensOn = 0, command: Command = ""
) -> Iterator[Mapping[str, float]]:
    """Pause one process with SIGSTOP until the lease ends, then continue it with SIGCONT.

    A stuck engine behind an API that still says it is well (vLLM issue 39863, sglang 6624), or one rank of several that
    does not come to the collective (vLLM 1957). Connections stay open and nothing answers; the kernel goes on accepting
    new ones until the backlog is full. The state in /proc/PID/stat proves both ends (NVIDIA Dynamo's fault tests check
    the same letter). Only this very process is continued: id, start time and boot are compared, so that no successor
    gets a signal. A watchdog continues it where the host itself is killed.

    Exactly one process of this user must match; process 1, the host and its parents are refused.
    """
    process = processes.choose(pid=pid, listens_on=listens_on, command=command)
    try:
        process.pause()
        yield {"paused_processes": 1.0}
    finally:
        process.resume()
