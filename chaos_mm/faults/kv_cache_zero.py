"""Holes in what attention remembers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.engine import AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import rewrite
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import bits_of, chosen, filled, marked


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

    def change(part: KvPart, label: str) -> tuple[Any, Mapping[str, float]] | None:
        if unit == "elements":
            return _holed(part.tensor, rng, label, share)
        return _zeroed(part.tensor, chosen(rng, _label(part, label), part.tensor[:1, ..., :1], share))

    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    return rewrite(cache, after_tokens, change, **place)


def _label(part: KvPart, label: str) -> str:
    """The same for all layers and names: only which of a layer's parts it is."""
    return label.rpartition(" ")[2]


def _holed(tensor: Any, rng: Rng, label: str, share: float) -> tuple[Any, Mapping[str, float]] | None:
    import torch

    new, count = tensor.clone(memory_format=torch.contiguous_format), 0
    flat = new.view(-1)
    for start, mask in marked(rng, label, flat.numel(), flat.device, share):
        piece = flat[start : start + mask.numel()]
        mask &= (piece.float() if piece.element_size() == 1 else piece) != 0
        count += int(torch.count_nonzero(mask))
        bits = bits_of(piece)
        bits.mul_(mask.logical_not_().to(bits.dtype))  # all bits 0: zero in every format. A fill is slower
    return (new, {"zeroed_elements": count}) if count else None


def _zeroed(tensor: Any, mask: Any) -> tuple[Any, Mapping[str, float]] | None:
    # Float8 compares with nothing on a CPU; the wider formats are compared as they are, without a float32 copy.
    struck = mask & ((tensor.float() if tensor.element_size() == 1 else tensor) != 0)
    count = int(struck.sum())
    return (filled(tensor, struck, 0.0), {"zeroed_elements": count}) if count else None
