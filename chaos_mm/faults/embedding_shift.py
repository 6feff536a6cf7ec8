"""Embeddings moved as a whole, away from where the decoder expects them."""

from typing import Annotated, Any, Literal

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import generator


@fault(
    Target.EMBEDDING,
    dose="shift_sigma",
    presets={
        1: {"shift_sigma": 0.25},
        2: {"shift_sigma": 0.5},
        3: {"shift_sigma": 0.82},
        4: {"shift_sigma": 1.5},
        5: {"shift_sigma": 3.0},
    },
)
def embedding_shift(
    value: Embedding,
    rng: Rng,
    *,
    shift_sigma: Annotated[
        float, Param("root mean square shift of an element", ge=0, le=8, unit="of the clean reference's std")
    ] = 0.82,
    place: Role = "projector",
    direction: Annotated[
        Literal["place", "request", "constant"],
        Param("one random direction for the place, one for each request, or every element up by the same"),
    ] = "place",
    direction_seed: Annotated[int, Param("another number is another direction of the place", ge=0, le=9999)] = 0,
) -> object:
    """Add one vector to every row, as encoder weights of another version or a drifted normalisation do.

    The vector's root mean square is ``shift_sigma`` times the standard deviation of the clean reference's elements,
    whatever the direction, so its length is shift_sigma * std * sqrt(dim). A shift of 0.82 sigma is a known incident,
    0.75 sigma the alarm for it. ``place`` directions hang on the module's name, the width and ``direction_seed``
    alone: all requests of all runs move the same way, as under real drift; ``request`` draws a fresh one from the
    lease's seed. Directions are uniform on the sphere.

    A model without the place refuses the lease when it is put; ``projector`` stands in LLaVA, BLIP-2, Qwen2-VL and
    Qwen2-Audio. Reports ``shift_sigma`` and ``cosine`` (mean over the rows, to the clean ones) as handed on, after
    rounding to the engine's type, and ``nonfinite_values`` that came of it. Raises ValueError where the reference's
    standard deviation is not a finite number above zero.
    """
    if shift_sigma == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    import torch

    std = value.reference()["std"]
    if not 0 < std < float("inf"):
        raise ValueError(f"embedding_shift: the reference at {value.module!r} has the standard deviation {std}")
    clean = value.tensor.detach().float()
    unit = torch.ones(clean.shape[-1])
    if direction != "constant":
        source = rng if direction == "request" else Rng.derive(direction_seed, value.module, "direction", "place")
        unit = _unit(source, clean.shape[-1])
    new = (clean + (shift_sigma * std * unit).to(clean.device)).to(value.tensor.dtype)
    value.replace(new)
    return Outcome(value, _figures(clean, new.float(), std))


def _unit(rng: Rng, dim: int) -> Any:
    """A vector uniform on the sphere of root mean square one, float32 on the CPU so that every device gets the same."""
    import torch

    drawn = torch.randn(dim, dtype=torch.float64, generator=generator(rng, "direction", "cpu"))
    return (drawn / drawn.square().mean().sqrt()).float()


def _figures(clean: Any, new: Any, std: float) -> dict[str, float]:
    import torch

    finite = torch.isfinite(new)
    moved = torch.where(finite, new - clean, 0.0)
    cosine = torch.nn.functional.cosine_similarity(clean, torch.where(finite, new, 0.0), dim=-1)
    return {
        "shift_sigma": float(moved.square().mean().sqrt()) / std,
        "cosine": float(cosine.mean()),
        "nonfinite_values": float(new.numel() - int(finite.sum())),
    }
