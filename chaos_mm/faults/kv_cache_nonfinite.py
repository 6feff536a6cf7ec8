"""Poison in what attention remembers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.bits import format_of
from chaos_mm.core.engine import AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import rewrite
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, bits_of, pattern_of, places


@fault(
    Target.KV_CACHE,
    dose="share",
    presets={1: {"share": 1e-5}, 2: {"share": 1e-4}, 3: {"share": 1e-3}, 4: {"share": 1e-2}, 5: {"share": 0.1}},
)
def kv_cache_nonfinite(
    cache: KvCache,
    rng: Rng,
    *,
    share: Annotated[float, Param("elements poisoned, of all that are selected", ge=0, le=1)] = 1e-3,
    value: Annotated[Literal["nan", "inf", "-inf"], Param("what is written")] = "nan",
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "values",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Write NaN or infinity into a request's keys and values, as an overflow or an uninitialised block does.

    One NaN among the values of a head makes every later output of that head NaN, since zero times NaN is NaN, and the
    logits with it: "!!!!" at full speed with status 200 (vLLM pull request 35219, poisoned leftovers; vLLM issue 41343;
    llama.cpp issue 17534, overflow to infinity). float8_e4m3fn has no infinity and int8 neither that nor NaN: refused
    by name.

    A larger share poisons what a smaller one does and more. Struck once a request, before output token
    ``after_tokens`` is computed; 0 strikes what the prefix cache brought, and passes requests without a hit. Reports
    ``parts``, ``elements`` and ``nonfinite_values``, those written.
    """
    room = Room()

    def change(part: KvPart, label: str) -> tuple[Any, Mapping[str, float]] | None:
        _require(part.tensor.dtype, value)
        return _poisoned(room.copy(part.tensor), rng, label, float(value), share)

    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    return rewrite(cache, after_tokens, change, **place)


def _require(dtype: Any, value: str) -> None:
    kind = format_of(dtype)
    if not (kind.nan if value == "nan" else kind.infinity):
        has = "NaN alone" if kind.nan else "neither NaN nor infinity"
        raise InvalidParams(f"value={value!r} cannot stand in a cache of {kind.name}; it has {has}")


def _poisoned(new: Any, rng: Rng, label: str, value: float, share: float) -> tuple[Any, Mapping[str, float]] | None:
    flat, count, pattern = bits_of(new.view(-1)), 0, pattern_of(value, new.dtype)
    for struck in places(rng, label, flat.numel(), flat.device, share):
        flat[struck] = pattern
        count += struck.numel()
    return (new, {"nonfinite_values": count}) if count else None
