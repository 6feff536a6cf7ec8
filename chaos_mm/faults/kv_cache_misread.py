"""What attention remembers, read the wrong way."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.bits import format_of
from chaos_mm.core.engine import NOT_NOW, AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import due, labelled, rewrite, struck
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import changed


def _known_here(what: str, which: str, **_: Any) -> None:
    if what == "halves" and which.strip() != "both":
        raise InvalidParams(f"which={which[:60]!r} is not allowed with what='halves'; it exchanges 'both'")


@fault(Target.KV_CACHE, known_here=_known_here)
def kv_cache_misread(
    cache: KvCache,
    rng: Rng,
    *,
    what: Annotated[
        Literal["dtype", "stride", "halves"], Param("number format, order of the axes, or keys for values")
    ] = "stride",
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "both",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Leave a request's keys and values as a reader with the wrong idea of the layout would find them.

    ``dtype``: the bits are read as the sister format of the same width (float16 and bfloat16, E4M3 and E5M2; float32
    as int32, int8 as E4M3) and the numbers put back into the cache's own. ``stride``: each head's (tokens, content) is
    read as (content, tokens), so the same numbers stand at other places. ``halves``: keys stand for values and values
    for keys. Real relatives: a connector that misjudged the packed layout of a new release, silently (LMCache issue
    4463, Dynamo issue 14416), and an ignored fp8 flag (vLLM issue 13133).

    Struck once a request, before output token ``after_tokens`` is computed; 0 strikes what the prefix cache brought,
    and passes requests without a hit. Reports ``parts``, ``elements`` and ``changed_elements``.
    """
    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    if what == "halves":
        return _exchange(cache, after_tokens, place)
    read = _other_format if what == "dtype" else _transposed

    def change(part: KvPart, _: str) -> tuple[Any, Mapping[str, float]] | None:
        return _changed(part.tensor, read(part.tensor))

    return rewrite(cache, after_tokens, change, **place)


def _changed(old: Any, new: Any) -> tuple[Any, Mapping[str, float]] | None:
    count = changed(old, new)
    return (new, {"changed_elements": count}) if count else None


def _other_format(tensor: Any) -> Any:
    import torch

    kind = format_of(tensor.dtype)
    read = tensor.contiguous().view(getattr(torch, kind.sister))
    if kind.nan:
        return read.to(torch.float64).to(tensor.dtype)
    return read.float().nan_to_num(0).round().clamp(-128, 127).to(tensor.dtype)


def _transposed(tensor: Any) -> Any:
    heads, content = tensor.shape[0], tensor.shape[-1]
    return tensor.reshape(heads, content, -1).transpose(1, 2).reshape(tensor.shape).contiguous()


def _exchange(cache: KvCache, after_tokens: int, place: Mapping[str, str]) -> Any:
    if not due(cache, after_tokens):
        return NOT_NOW
    found = dict(labelled(cache.parts(**place)))
    changes = []
    for label, part in found.items():
        twin = found.get(label.replace("keys", "values") if part.name == "keys" else label.replace("values", "keys"))
        if twin is not None and twin.tensor.shape == part.tensor.shape and part.tensor.numel():
            new = _changed(part.tensor, twin.tensor.clone())
            changes += [(part, *new)] if new else []
    return struck(cache, changes)
