"""A Q-Former whose answers are off."""

from typing import Annotated, Any, Literal

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import generator


@fault(
    Target.EMBEDDING,
    dose="amount",
    presets={1: {"amount": 0.25}, 2: {"amount": 0.5}, 3: {"amount": 1.0}, 4: {"amount": 2.0}, 5: {"amount": 4.0}},
)
def qformer_perturbation(
    value: Embedding,
    rng: Rng,
    *,
    amount: Annotated[
        float, Param("noise and shift: of the clean reference's std; permute: share of the queries", ge=0, le=8)
    ] = 0.5,
    kind: Annotated[
        Literal["noise", "shift", "permute"], Param("noise on each element, one vector on every query, or new order")
    ] = "noise",
    place: Role = "qformer",
) -> object:
    """Disturb the learned queries' outputs, as a badly merged adapter or a race on its buffers does.

    Q-Former: the querying transformer of BLIP-2 (Li et al., 2023). ``noise`` and ``shift`` have the root mean square
    ``amount`` times the standard deviation of the clean reference's elements; the shift's direction is uniform on the
    sphere, fresh for each request. ``permute`` moves that share of the queries (all of them from 1 on, never fewer
    than two) round a random cycle, so that each of those stands where another belongs; contents stay whole.

    A model without a Q-Former refuses the lease when it is put. Reports ``queries_moved`` (rows that are no longer the
    same), ``rms_sigma`` and ``cosine`` (mean over the queries, to the clean ones). Raises ValueError where the
    reference's standard deviation is not a finite number above zero.
    """
    if amount == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    std = value.reference()["std"]
    if not 0 < std < float("inf"):
        raise ValueError(f"qformer_perturbation: the reference at {value.module!r} has the standard deviation {std}")
    clean = value.tensor.detach()
    if kind == "permute":
        if clean.shape[0] < 2:
            return NOT_NOW
        new = _cycled(clean, rng, amount)
    else:
        new = (clean.float() + amount * std * _drawn(clean, rng, kind)).to(clean.dtype)
    value.replace(new)
    return Outcome(value, _figures(clean, new, std))


def _drawn(clean: Any, rng: Rng, kind: str) -> Any:
    """Noise (rows, dim) of standard deviation one, or a shift (dim) of root mean square one.

    Drawn on the CPU, so that every device gets the same.
    """
    import torch

    shape = clean.shape if kind == "noise" else clean.shape[-1:]
    drawn = torch.randn(shape, generator=generator(rng, kind, "cpu"))
    if kind == "shift":
        drawn = drawn / drawn.square().mean().sqrt()
    return drawn.to(clean.device)


def _cycled(clean: Any, rng: Rng, share: float) -> Any:
    """The first k of a random order of the rows, each put in the next one's place."""
    import torch

    k = max(2, round(min(share, 1.0) * clean.shape[0]))
    chosen = torch.randperm(clean.shape[0], generator=generator(rng, "permute", "cpu"))[:k].to(clean.device)
    new = clean.clone()
    new[chosen] = clean[chosen.roll(1)]
    return new


def _figures(clean: Any, new: Any, std: float) -> dict[str, float]:
    import torch

    before, after = clean.float(), torch.nan_to_num(new.float(), nan=0.0, posinf=0.0, neginf=0.0)
    return {
        "queries_moved": float((new != clean).any(-1).sum()),
        "rms_sigma": float((after - before).square().mean().sqrt()) / std,
        "cosine": float(torch.nn.functional.cosine_similarity(before, after, dim=-1).mean()),
    }
