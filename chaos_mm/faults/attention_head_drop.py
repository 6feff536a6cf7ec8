"""Attention heads that say nothing, or something else."""

from typing import Annotated, Any, Literal

from chaos_mm.core.attention import BeginAt, meant
from chaos_mm.core.engine import NOT_NOW, AttentionCall, Heads, Layers, indices
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng

_KEPT = 4096  # orders of heads, one a request and layer


@fault(
    Target.ATTENTION,
    dose="share",
    presets={1: {"share": 0.125}, 2: {"share": 0.25}, 3: {"share": 0.5}, 4: {"share": 0.75}, 5: {"share": 1.0}},
)
def attention_head_drop(
    call: AttentionCall,
    rng: Rng,
    *,
    share: Annotated[float, Param("heads struck, of those selected; at least one", ge=0, le=1)] = 0.5,
    how: Annotated[
        Literal["zero", "permute", "scale"], Param("silence them, exchange their places, or make them louder or softer")
    ] = "zero",
    factor: Annotated[float, Param("scale: what the output is multiplied by", ge=-16, le=16)] = 4.0,
    heads: Heads = "all",
    layers: Layers = "all",
    after_tokens: BeginAt = 0,
) -> Any:
    """Zero, permute or scale the output of query heads, after attention and before its output projection.

    The heads are drawn for each layer and stay the same for a request; a larger share strikes those of a smaller one
    and more. ``permute`` hands each struck head the output of the next one struck; a single head has nobody to exchange
    with and is let be. The reports: a planner that took the model's head count for a layer that had another (vLLM issue
    41651 and pull request 42650), wrong results at one head size (flashinfer issue 1993): answers slightly worse,
    status 200. Whole heads removed: "Are sixteen heads really better than one?" (Michel et al., 2019).

    Strikes every call from ``after_tokens`` on; what later tokens remember of it goes with the request's cache. Reports
    ``struck_heads`` and ``struck_share`` of the layer's heads.
    """
    if share == 0 or not meant(call, layers, after_tokens):
        return NOT_NOW
    order = _order(call, rng)
    candidates = set(indices(heads, call.heads, "heads"))
    struck = [head for head in order if head in candidates][: max(1, round(share * len(candidates)))]
    if how == "permute" and len(struck) < 2:
        return NOT_NOW
    call.edit_output(lambda output: _edit(output, struck, how, factor))
    return Outcome(call, {"struck_heads": float(len(struck)), "struck_share": len(struck) / call.heads})


def _order(call: AttentionCall, rng: Rng) -> list[int]:
    """The layer's heads in the order in which a request loses them: drawn at its first call, and kept."""
    kept: dict[tuple[str, int], list[int]] = call.state.setdefault("order", {})
    place = "".join(call.requests[:1]), call.layer
    if place not in kept:
        kept[place] = sorted(range(call.heads), key=lambda head: rng.key(f"{call.layer} {head}"))
    for old in list(kept)[:-_KEPT]:
        del kept[old]
    return kept[place]


def _edit(output: Any, struck: list[int], how: str, factor: float) -> None:
    """In place, on (tokens, heads, head_dim)."""
    if how == "permute":
        output[:, struck] = output[:, [*struck[1:], struck[0]]]
    elif how == "scale":
        output[:, struck] *= factor
    else:
        output[:, struck] = 0
