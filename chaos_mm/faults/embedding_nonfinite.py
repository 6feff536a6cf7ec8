"""Values that are no numbers, in what an encoder gives out."""

from math import isnan
from typing import Annotated, Literal

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import generator


@fault(
    Target.EMBEDDING,
    dose="share",
    presets={
        1: {"share": 0.0001},
        2: {"share": 0.001},
        3: {"share": 0.01},
        4: {"share": 0.1},
        5: {"share": 1.0},
    },
)
def embedding_nonfinite(
    value: Embedding,
    rng: Rng,
    *,
    share: Annotated[float, Param("elements to overwrite, of all; at least one", ge=0, le=1)] = 0.001,
    fill: Annotated[Literal["nan", "inf", "-inf"], Param("what is written there")] = "nan",
    place: Role = "projector",
) -> object:
    """Overwrite elements with NaN or infinity, as an overflow in half precision or a division by zero does.

    The elements are drawn without repetition; for one request a larger share holds all those of a smaller one. What
    the decoder makes of a single NaN is the point: attention spreads it to every later token of the request.

    A model without the place refuses the lease when it is put. Reports ``nonfinite_values``, as handed on, those that
    were there before included, and ``share``, those written over all. Raises ValueError where the engine's type has
    no such value, as float8 e4m3 has no infinity.
    """
    if share == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    import torch

    new = value.tensor.detach().clone().reshape(-1)
    wanted, held = float(fill), float(torch.tensor(float(fill)).to(new.dtype).float())
    if held != wanted and not (isnan(wanted) and isnan(held)):
        raise ValueError(f"embedding_nonfinite: {new.dtype} has no {fill}")
    count = max(1, round(share * new.numel()))
    order = torch.randperm(new.numel(), generator=generator(rng, "elements", "cpu"))
    new[order[:count].to(new.device)] = wanted
    value.replace(new.reshape(value.tensor.shape))
    bad = int((~torch.isfinite(new.float())).sum())
    return Outcome(value, {"nonfinite_values": float(bad), "share": count / new.numel()})
