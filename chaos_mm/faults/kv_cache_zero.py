"""Holes in what attention remembers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.engine import AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import rewrite
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, bits_of, chosen, marked, pieces


@fault(
    Target.KV_CACHE,
    dose="share",
    presets={1: {"share": 0.05}, 2: {"share": 0.1}, 3: {"share": 0.25}, 4: {"share": 0.5}, 5: {"share": 0.9}},
)
def kv_cache_zero(
    cache: KvCache,
    rng: Rng,
    *,
    share: Annotated[float, Param("what is zeroed, of all that is selected", ge=0, le=1)] = 0.25,
    unit: Annotated[
        Literal["elements", "tokens"], Param("single numbers, or a token's whole keys and values")
    ] = "tokens",
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "both",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Zero a share of a request's keys and values, as blocks that were never written or never arrived do.

    ``tokens`` drops the same tokens in every selected layer, head, key and value; ``elements`` draws each number by
    itself. A zeroed key still takes part in the softmax, with a score of zero: this is another fault than forgetting
    the token. Zeroed prompt entries collapse answers where neutral ones hardly do (arXiv 2605.30574); stale zeros
    were met in transformers (pull request 48509, ``DynamicCache.reset``). In an engine that packs blocks, a row of the
    block takes the place of a token.

    A larger share zeroes what a smaller one does and more. Struck once a request, before output token ``after_tokens``
    is computed; 0 strikes what the prefix cache brought, and passes requests without a hit. Reports ``parts``,
    ``elements`` and ``zeroed_elements``, those that were not zero before.
    """
    room = Room()

    def change(part: KvPart, label: str) -> tuple[Any, Mapping[str, float]] | None:
        new = room.copy(part.tensor)
        if unit == "elements":
            return _holed(new, rng, label, share)
        return _dropped(new, chosen(rng, _label(part, label), new[0, ..., :1], share))

    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    return rewrite(cache, after_tokens, change, **place)


def _label(part: KvPart, label: str) -> str:
    """The same for all layers and names: only which of a layer's parts it is."""
    return label.rpartition(" ")[2]


def _holed(new: Any, rng: Rng, label: str, share: float) -> tuple[Any, Mapping[str, float]] | None:
    import torch

    flat, count = new.view(-1), 0
    for start, mask in marked(rng, label, flat.numel(), flat.device, share):
        piece = flat[start : start + mask.numel()]
        mask &= _nonzero(piece)
        count += int(torch.count_nonzero(mask))
        bits = bits_of(piece)
        bits.mul_(mask.logical_not_().to(bits.dtype))  # all bits 0: zero in every format. A fill is slower
    return (new, {"zeroed_elements": count}) if count else None


def _dropped(new: Any, mask: Any) -> tuple[Any, Mapping[str, float]] | None:
    """``mask``: one head's shape with a single content, the same for all heads."""
    import torch

    count = 0
    for piece, struck in pieces(new, mask.expand(new.shape)):
        struck = struck & _nonzero(piece)
        count += int(torch.count_nonzero(struck))
        bits_of(piece).masked_fill_(struck, 0)
    return (new, {"zeroed_elements": count}) if count else None


def _nonzero(tensor: Any) -> Any:
    # Float8 compares with nothing on a CPU; the wider formats are compared as they are, without a float32 copy.
    return (tensor.float() if tensor.element_size() == 1 else tensor) != 0
