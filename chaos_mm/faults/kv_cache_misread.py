"""What attention remembers, read the wrong way."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.bits import format_of
from chaos_mm.core.engine import NOT_NOW, AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import due, labelled, rewrite, struck
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, changed, pieces


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
    read, room = _other_format if what == "dtype" else _transposed, Room()

    def change(part: KvPart, _: str) -> tuple[Any, Mapping[str, float]] | None:
        return _changed(part.tensor, read(part.tensor, room.like(part.tensor)))

    return rewrite(cache, after_tokens, change, **place)


def _changed(old: Any, new: Any) -> tuple[Any, Mapping[str, float]] | None:
    count = changed(old, new)
    return (new, {"changed_elements": count}) if count else None


def _other_format(tensor: Any, new: Any) -> Any:
    import torch

    kind = format_of(tensor.dtype)
    sister = getattr(torch, kind.sister)
    exact = torch.float64 if kind.width == 32 else torch.float32  # holds every number of the sister format
    for old, made in pieces(tensor, new):
        read = old.contiguous().view(sister).to(exact)
        made.copy_(read if kind.nan else read.nan_to_num_(0).round_().clamp_(-128, 127))
    return new


def _transposed(tensor: Any, new: Any) -> Any:
    content = tensor.shape[-1]
    for old, made in zip(tensor, new, strict=True):  # head by head: torch transposes a plain matrix twice as fast
        made.view(-1, content).copy_(old.reshape(content, -1).t())
    return new


def _exchange(cache: KvCache, after_tokens: int, place: Mapping[str, str]) -> Any:
    if not due(cache, after_tokens):
        return NOT_NOW
    found = dict(labelled(cache.parts(**place)))
    pairs = ((part, found.get(label.replace("keys", "values"))) for label, part in found.items() if part.name == "keys")
    return struck(cache, _exchanges((keys, values) for keys, values in pairs if values is not None))


def _exchanges(pairs: Iterable[tuple[KvPart, KvPart]]) -> Iterator[tuple[KvPart, Any, Mapping[str, float]]]:
    """Both ways for each pair of one shape that differs; both copies are made before either is written."""
    one, other = Room(), Room()
    for keys, values in pairs:
        if keys.tensor.shape != values.tensor.shape or not keys.tensor.numel():
            continue
        count = changed(keys.tensor, values.tensor)
        if count:
            new = one.copy(values.tensor), other.copy(keys.tensor)
            yield keys, new[0], {"changed_elements": count}
            yield values, new[1], {"changed_elements": count}
