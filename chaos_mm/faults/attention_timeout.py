"""Attention that misses its deadline."""

from typing import Annotated, Any

from chaos_mm.core.attention import BeginAt, count, meant, open_requests
from chaos_mm.core.engine import NOT_NOW, AttentionCall, Layers, Raise
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng

_ENDED = 0.9  # of the deadline: who slept less was woken by the end of the lease, which must harm nobody any more


@fault(Target.ATTENTION, changes_content=False)
def attention_timeout(
    call: AttentionCall,
    rng: Rng,
    *,
    deadline_seconds: Annotated[float, Param("a call does not return before", ge=0.001, le=30, unit="s")] = 0.12,
    times: Annotated[int, Param("calls in a row that miss it, the last of which may raise", ge=1, le=10_000)] = 3,
    after_tokens: BeginAt = 0,
    layers: Layers = "0",
) -> Any:
    """Let attention calls miss a deadline, so many times in a row, then fail where the engine survives that.

    Each selected call of a request is held until the deadline has passed. The last one then raises TimeoutError before
    anything is launched, where an exception costs one request alone; a caller with another kernel to fall back on may
    use it, since the device was never touched. Where an exception in a step ends the engine it returns late instead:
    ``raised`` in the evidence says which it was. A request is struck ``times`` times and then left alone.

    Real timeouts of attention are hangs and not exceptions (flashinfer issues 2939 and 3279: warnings for minutes, then
    a dead engine); a kernel on a device cannot be called back, so this is the part of the story before the launch.
    Where a batch is computed at a time, the wait reaches every request in it. Reports ``held_seconds`` and ``raised``.
    """
    waiting = open_requests(call, times) if meant(call, layers, after_tokens) else []
    if not waiting:
        return NOT_NOW
    held = call.sleep(deadline_seconds)
    last = count(call, waiting) >= times
    raises = last and call.survives_raise and held > _ENDED * deadline_seconds
    figures = {"held_seconds": held, "raised": float(raises)}
    if not raises:
        return Outcome(call, figures)
    return Raise(TimeoutError(f"attention did not return within {deadline_seconds:g} s, {times} times"), figures)
