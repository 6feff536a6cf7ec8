"""Kept encoder outputs that are gone."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from chaos_mm.core.engine import EncoderCache
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(
    Target.CACHE,
    dose="share",
    presets={1: {"share": 0.1}, 2: {"share": 0.25}, 3: {"share": 0.5}, 4: {"share": 0.75}, 5: {"share": 1.0}},
    seam=Seam.ENCODER_CACHE,
)
def encoder_cache_evict(
    cache: EncoderCache,
    rng: Rng,
    *,
    share: Annotated[float, Param("of the entries that nobody is using", ge=0, le=1)] = 1.0,
) -> Iterator[Mapping[str, float]]:
    """Drop kept encoder outputs once, as a restart of the cache's node or a burst of other pictures does.

    Answers must not change: the encoder computes again what was dropped, and time to first token shows it. Entries in
    use stay. It acts once, when the lease begins; its end has nothing to undo, since traffic fills the cache again.

    Reports ``evicted_entries``, ``entries_before`` and ``entries_after``. Raises ChaosMMError where nothing was
    dropped, since an empty cache, or one in use throughout, exercises nothing.
    """
    before = cache.entries
    evicted = cache.evict(share)
    if evicted == 0:
        raise ChaosMMError(f"encoder_cache_evict: none of the {before} entries could be dropped; send a picture first")
    yield {
        "evicted_entries": float(evicted),
        "entries_before": float(before),
        "entries_after": float(cache.entries),
    }
