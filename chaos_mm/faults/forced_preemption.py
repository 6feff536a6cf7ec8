"""Requests thrown out of the running batch."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.engine import Scheduler
from chaos_mm.core.fault import Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.SCHEDULER, seam=Seam.SCHEDULER, selectable=True)
def forced_preemption(
    scheduler: Scheduler,
    rng: Rng,
    *,
    after_tokens: Annotated[
        int, Param("preempt once this many output tokens stand", ge=1, le=100_000, unit="tokens")
    ] = 8,
    times: Annotated[int, Param("how often each request is preempted, every after_tokens tokens", ge=1, le=100)] = 1,
) -> Iterator[Mapping[str, float]]:
    """Preempt the selected requests in the middle of their answers, as full key-value memory does.

    A preempted request loses its key-value blocks, waits, and is computed again from its prompt and what it has said
    so far. Its text must be that of a twin that was never preempted; what it costs is time. A request that ends
    before ``after_tokens`` is not preempted, and the end of the lease lets everyone run.

    Reports ``after_tokens`` and ``times`` as set; preemptions done are counted as the lease's applications.
    """
    try:
        scheduler.preempt_after(after_tokens, times)
        yield {"after_tokens": float(after_tokens), "times": float(times)}
    finally:
        scheduler.stop_preempting()
