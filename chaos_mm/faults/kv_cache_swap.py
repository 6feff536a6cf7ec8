"""Another request's memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos_mm.core.engine import NOT_NOW, AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Target, fault
from chaos_mm.core.kv_cache import due, labelled, struck
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, changed


@fault(Target.KV_CACHE, carries_content=True)
def kv_cache_swap(
    cache: KvCache,
    rng: Rng,
    *,
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "both",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Put another canary's keys and values in the place of a request's own: the wrong picture's memory, status 200.

    The other is the first canary whose cache has something of the same shape: a live one, or else one that has finished
    and whose blocks still stand. What stands at a place of its cache is copied to the same place of this one, as far as
    both reach; nothing of the other's is written. Where no such canary is, the step passes unhurt and the next one is
    tried. Both are canaries, whose content is ours: no user's content is ever moved.

    The reports: image identity left out of a cache key or cut to 16 bits (LMCache issues 3301 and 4086; SGLang issue
    2151; vllm-mlx pull request 126), a disk tier that gives out other sessions' blocks (LMCache issue 4385). As an
    attack it is known as history swapping.

    Struck once a request, before output token ``after_tokens`` is computed; 0 strikes what the prefix cache brought,
    and passes requests without a hit. Reports ``parts``, ``elements`` and ``changed_elements``.
    """
    if not due(cache, after_tokens):
        return NOT_NOW
    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    mine = dict(labelled(cache.parts(**place)))
    for other in cache.others():
        made = struck(cache, _copies(mine, dict(labelled(_reached(other, place)))))
        if made is not NOT_NOW:
            return made
    return NOT_NOW


def _reached(other: KvCache, place: Mapping[str, str]) -> list[KvPart]:
    try:
        return list(other.parts(**place))
    except InvalidParams:  # its cache is shorter than the positions named, which this request's own has
        return []


def _copies(
    mine: Mapping[str, KvPart], theirs: Mapping[str, KvPart]
) -> Iterator[tuple[KvPart, Any, Mapping[str, float]]]:
    room = Room()
    for label, part in mine.items():
        made = _copy(part.tensor, theirs[label].tensor, room) if label in theirs else None
        if made is not None:
            yield part, *made


def _copy(old: Any, other: Any, room: Room) -> tuple[Any, Mapping[str, float]] | None:
    """Axis 1 (tokens, or a block's rows) as far as both reach; None where the rest differs or nothing would change."""
    if (old.dtype, old.shape[:1], old.shape[2:]) != (other.dtype, other.shape[:1], other.shape[2:]):
        return None
    reach = min(old.shape[1], other.shape[1])
    count = changed(old[:, :reach], other[:, :reach])
    if not count:
        return None
    new = room.copy(old)
    new[:, :reach] = other[:, :reach]
    return new, {"changed_elements": count}
