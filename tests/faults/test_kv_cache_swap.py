"""kv_cache_swap: whose memory stands where afterwards."""

import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_swap import kv_cache_swap
from tests.contract.engine_samples import DTYPES, SampleKvCache, raw


def _rng() -> Rng:
    return Rng.derive(3, "r-1", "0", "kv_cache_swap")


def test_it_may_only_ever_hurt_canaries():
    assert kv_cache_swap.carries_content


def test_the_first_other_canary_s_memory_stands_at_the_same_places_and_its_own_is_not_touched():
    for dtype in DTYPES:
        first, second = (SampleKvCache.make(dtype, seed=seed, request=f"r-{seed}") for seed in (8, 9))
        cache = SampleKvCache.make(dtype, donors=[first, second])
        kept = first.bytes(), second.bytes()
        made = kv_cache_swap(cache, _rng())
        assert cache.bytes() == first.bytes()
        assert (first.bytes(), second.bytes()) == kept and not first.undo
        own = SampleKvCache.make(dtype)
        width = dtype.itemsize
        assert made.achieved["changed_elements"] == sum(
            own.bytes()[i : i + width] != first.bytes()[i : i + width] for i in range(0, len(own.bytes()), width)
        )


def test_a_shorter_or_longer_memory_reaches_as_far_as_both_do():
    for tokens in (5, 40):
        donor, cache = SampleKvCache.make(seed=9, tokens=tokens), SampleKvCache.make(tokens=17)
        before = {place: tensor.clone() for place, tensor in cache.store.items()}
        cache.donors = [donor]
        kv_cache_swap(cache, _rng())
        reach = min(tokens, 17)
        for place, tensor in cache.store.items():
            assert raw(tensor[:, :reach]) == raw(donor.store[place][:, :reach])
            assert raw(tensor[:, reach:]) == raw(before[place][:, reach:])


def test_only_the_selection_is_replaced():
    donor = SampleKvCache.make(seed=9)
    cache = SampleKvCache.make(donors=[donor])
    before = {place: tensor.clone() for place, tensor in cache.store.items()}
    kv_cache_swap(cache, _rng(), layers="2", heads="3", positions="4-6", which="keys")
    wanted = before[2, "keys"].clone()
    wanted[3, 4:7] = donor.store[2, "keys"][3, 4:7]
    for place, tensor in cache.store.items():
        assert torch.equal(tensor, wanted if place == (2, "keys") else before[place])


def test_without_another_canary_of_its_shape_the_step_passes():
    for others in ([], [SampleKvCache.make(heads=2, seed=9)], [SampleKvCache.make(torch.float16, seed=9)]):
        cache = SampleKvCache.make(donors=others)
        assert kv_cache_swap(cache, _rng()) is NOT_NOW
        assert not cache.undo
    same = SampleKvCache.make(donors=[SampleKvCache.make()])
    assert kv_cache_swap(same, _rng()) is NOT_NOW, "the same memory again changes nothing"


def test_one_that_is_too_short_for_the_positions_named_is_passed_over_for_the_next():
    short, long = SampleKvCache.make(seed=8, tokens=3), SampleKvCache.make(seed=9)
    cache = SampleKvCache.make(donors=[short, long])
    kv_cache_swap(cache, _rng(), positions="10-12")
    for place, tensor in cache.store.items():
        assert raw(tensor[:, 10:13]) == raw(long.store[place][:, 10:13])
