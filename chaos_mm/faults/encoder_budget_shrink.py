"""An encoder cache too small for its traffic."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.engine import EncoderCache
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(
    Target.CACHE,
    dose="share",
    presets={1: {"share": 0.25}, 2: {"share": 0.5}, 3: {"share": 0.75}, 4: {"share": 0.9}, 5: {"share": 1.0}},
    seam=Seam.ENCODER_CACHE,
)
def encoder_budget_shrink(
    cache: EncoderCache,
    rng: Rng,
    *,
    share: Annotated[float, Param("of the capacity to take away", ge=0, le=1)] = 0.5,
) -> Iterator[Mapping[str, float]]:
    """Take capacity from the encoder cache, as a wrong setting or a larger model on the same device does.

    Pictures that used to be kept are computed again, and requests wait for room. At least one unit of capacity stays;
    the engine may hold more back, since a request larger than the budget would wait for ever. The end sets the former
    capacity.

    Reports ``budget_before`` and ``budget_after``, in tokens on vLLM and in entries elsewhere. Raises ChaosMMError
    where the capacity did not shrink, since then nothing is exercised.
    """
    before = cache.budget
    try:
        cache.set_budget(max(1, round(before * (1 - share))))
        if cache.budget >= before:
            raise ChaosMMError(f"encoder_budget_shrink: the budget of {before} cannot shrink by a share of {share:g}")
        yield {"budget_before": float(before), "budget_after": float(cache.budget)}
    finally:
        cache.set_budget(before)
        if cache.budget != before:
            raise ChaosMMError(f"encoder_budget_shrink: the budget is {cache.budget} again, not {before}")
