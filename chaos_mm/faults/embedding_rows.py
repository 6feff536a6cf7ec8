"""An encoder output of the wrong length."""

from typing import Annotated, Literal

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Effect, Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng


@fault(
    Target.EMBEDDING,
    dose="rows",
    presets={1: {"rows": 1}, 2: {"rows": 2}, 3: {"rows": 4}, 4: {"rows": 16}, 5: {"rows": 64}},
    effect=Effect.ROWS,
)
def embedding_rows(
    value: Embedding,
    rng: Rng,
    *,
    rows: Annotated[int, Param("how many rows too few or too many", ge=0, le=4096)] = 1,
    action: Annotated[Literal["drop", "duplicate"], Param("drop the last rows, or append them once more")] = "drop",
    place: Role = "projector",
) -> object:
    """Hand on fewer or more rows than the prompt has placeholders, as a malformed picture or a miscounted tile does.

    Published relative: vLLM issue 55546, where one item of 638 placeholders and 138 embeddings took every data-parallel
    rank down. The engine notices at the merge, if at all; vLLM 0.32 ends there, other requests with it, and the lease
    is labelled with what its adapter says of that. ``drop`` leaves at least one row; an output of one row is let pass.
    ``duplicate`` begins with the last rows, and goes round where more are asked for than there are.

    A model without the place refuses the lease when it is put. Reports ``rows_before`` and ``rows_after``.
    """
    if rows == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    import torch

    clean = value.tensor.detach()
    before = clean.shape[0]
    if action == "drop":
        if before == 1:
            return NOT_NOW
        new = clean[: max(1, before - rows)].clone()
    else:
        # Rows before - rows ... before - 1, counted round the output.
        again = torch.arange(before - rows, before, device=clean.device) % before
        new = torch.cat([clean, clean[again]])
    value.replace(new)
    return Outcome(value, {"rows_before": float(before), "rows_after": float(new.shape[0])})
