"""encoder_cache_evict on a real LRU of encoder outputs: computed again, and the same."""

import pytest
import torch

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.rng import Rng
from chaos_mm.faults.encoder_cache_evict import encoder_cache_evict
from tests.contract.engine_samples_embedding import EncoderStore, pictures

RNG = Rng.derive(3, "lease-1", "0", "encoder_cache_evict")


def _filled(count: int = 20) -> tuple[EncoderStore, torch.Tensor, list[torch.Tensor]]:
    store, media = EncoderStore(), pictures(count)
    return store, media, [store.rows("u", picture) for picture in media]


@pytest.mark.parametrize(("share", "gone"), [(0.1, 2), (0.5, 10), (1.0, 20)])
def test_what_was_dropped_is_computed_again_and_answers_are_the_same(share: float, gone: int):
    store, media, before = _filled()
    hold = encoder_cache_evict(store, RNG, share=share)
    assert next(hold) == {"evicted_entries": gone, "entries_before": 20, "entries_after": 20 - gone}
    hold.close()
    encoded = store.encoded
    after = [store.rows("u", picture) for picture in media]
    assert store.encoded - encoded == gone
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_what_is_in_use_stays():
    store, media, _ = _filled()
    store.in_use = {store.key("u", picture) for picture in media[:7]}
    assert next(encoder_cache_evict(store, RNG, share=1.0))["evicted_entries"] == 13
    assert set(store.kept) == store.in_use


def test_an_empty_cache_and_one_in_use_throughout_are_refused_with_the_count():
    with pytest.raises(ChaosMMError, match="none of the 0 entries could be dropped; send a picture first"):
        next(encoder_cache_evict(EncoderStore(), RNG))
    store, _, _ = _filled(4)
    store.in_use = set(store.kept)
    with pytest.raises(ChaosMMError, match="none of the 4 entries"):
        next(encoder_cache_evict(store, RNG))
