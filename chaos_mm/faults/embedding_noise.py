"""Noise on what an encoder gives out."""

from typing import Annotated

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import generator


@fault(
    Target.EMBEDDING,
    dose="sigma",
    presets={1: {"sigma": 0.25}, 2: {"sigma": 0.5}, 3: {"sigma": 1.0}, 4: {"sigma": 2.0}, 5: {"sigma": 4.0}},
)
def embedding_noise(
    value: Embedding,
    rng: Rng,
    *,
    sigma: Annotated[
        float, Param("standard deviation of the noise", ge=0, le=8, unit="of the clean reference's std")
    ] = 0.5,
    place: Role = "projector",
) -> object:
    """Add Gaussian noise to every element, as too coarse a quantisation or a failing accelerator does.

    Each element has its own draw, fresh for each request. Independent noise of s standard deviations on elements of
    mean zero leaves a cosine of 1 / sqrt(1 + s²) to the clean rows: 0.89 at 0.5, 0.71 at 1, 0.45 at 2.

    A model without the place refuses the lease when it is put. Reports ``noise_sigma`` (root mean square, over the
    reference's standard deviation) and ``cosine`` (mean over the rows, to the clean ones) as handed on, after rounding
    to the engine's type, and ``nonfinite_values`` that came of it. Raises ValueError where the reference's standard
    deviation is not a finite number above zero.
    """
    if sigma == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    import torch

    std = value.reference()["std"]
    if not 0 < std < float("inf"):
        raise ValueError(f"embedding_noise: the reference at {value.module!r} has the standard deviation {std}")
    clean = value.tensor.detach().float()
    # Drawn on the CPU, so that every device gets the same.
    noise = torch.randn(clean.shape, generator=generator(rng, "noise", "cpu")).to(clean.device)
    new = (clean + sigma * std * noise).to(value.tensor.dtype)
    value.replace(new)
    after = new.float()
    finite = torch.isfinite(after)
    moved = torch.where(finite, after - clean, 0.0)
    cosine = torch.nn.functional.cosine_similarity(clean, torch.where(finite, after, 0.0), dim=-1)
    figures = {
        "noise_sigma": float(moved.square().mean().sqrt()) / std,
        "cosine": float(cosine.mean()),
        "nonfinite_values": float(after.numel() - int(finite.sum())),
    }
    return Outcome(value, figures)
