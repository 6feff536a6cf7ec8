"""Faults of these tests: small ones whose effect is known by heart."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from chaos_mm.core.engine import NOT_NOW, EngineMemory, KvCache, Raise
from chaos_mm.core.fault import Effect, Fault, Outcome, Param, Point, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.KV_CACHE, dose="amount")
def kv_add(
    value: KvCache,
    rng: Rng,
    *,
    amount: Annotated[float, Param("what is added to every key and value", ge=-100, le=100)] = 1.0,
    after: Annotated[int, Param("output token to wait for", ge=0, le=1000)] = 0,
) -> Any:
    """Add a number to what stands there."""
    if value.output_index < after:
        return NOT_NOW
    for part in value.parts():
        part.write(part.tensor + amount)
    return Outcome(value, {"added": amount, "draw": rng.random(), "undefined": float("nan")})


@fault(Target.KV_CACHE)
def kv_half(value: KvCache, rng: Rng, *, where: Annotated[str, Param("text of the error")] = "half way") -> Any:
    """Write the first part, then fail."""
    part = next(value.parts())
    part.write(part.tensor * 0 + 7)
    raise RuntimeError(where)


@fault(Target.ATTENTION, effect=Effect.RAISES)
def attention_break(value: Any, rng: Rng, *, note: Annotated[str, Param("text of the error")] = "broken") -> Any:
    """Let an error leave the attention layer."""
    return Raise(TimeoutError(note), {"layer": float(value.layer)})


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY)
def memory_mark(
    value: EngineMemory, rng: Rng, *, bytes_left: Annotated[int, Param("headroom", ge=0, le=2**40, unit="bytes")] = 1
) -> Iterator[Mapping[str, float]]:
    """Hold a ceiling."""
    ceiling = value.set_ceiling(bytes_left)
    try:
        yield {"ceiling_bytes": float(ceiling)}
    finally:
        value.lift_ceiling()


@fault(Target.SCHEDULER, seam=Seam.BLOCK_POOL)
def pool_stuck(value: Any, rng: Rng, *, note: Annotated[str, Param("text of the error")] = "stuck") -> Any:
    """Hold a block and fail to give it back."""
    value.hold(1)
    yield {"blocks": 1.0}
    raise RuntimeError(note)


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {made.name: made for made in (attention_break, kv_add, kv_half, memory_mark, pool_stuck)}
)
