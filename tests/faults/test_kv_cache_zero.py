"""kv_cache_zero: what is zeroed, what is not, and that the same tokens go everywhere."""

import math

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_zero import kv_cache_zero
from tests.contract.engine_samples import DTYPES, SampleKvCache, name_of, raw


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "kv_cache_zero")


def _ones(dtype: torch.dtype = torch.float32, tokens: int = 4000) -> SampleKvCache:
    cache = SampleKvCache.make(dtype, tokens=tokens)
    for tensor in cache.store.values():
        tensor.copy_(torch.ones(tensor.shape))
    return cache


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_tokens_go_whole_and_the_same_in_every_layer_head_key_and_value(share: float):
    cache = _ones()
    made = kv_cache_zero(cache, _rng(), share=share)
    masks = [tensor == 0 for tensor in cache.store.values()]
    first = masks[0][0, :, 0]
    assert all(torch.equal(mask, first[None, :, None].expand_as(mask)) for mask in masks)
    assert abs(int(first.sum()) - share * 4000) < 4.5 * math.sqrt(share * (1 - share) * 4000)
    assert made.achieved["zeroed_elements"] == sum(int(mask.sum()) for mask in masks)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_elements_are_drawn_one_by_one(share: float):
    cache = _ones()
    kv_cache_zero(cache, _rng(), share=share, unit="elements")
    masks = [tensor == 0 for tensor in cache.store.values()]
    count, total = sum(int(mask.sum()) for mask in masks), sum(mask.numel() for mask in masks)
    assert abs(count - share * total) < 4.5 * math.sqrt(share * (1 - share) * total)
    streams = torch.stack([mask.reshape(-1).float() for mask in masks])
    assert torch.corrcoef(streams).fill_diagonal_(0).abs().max() < 5 / math.sqrt(streams.shape[1])


def test_the_whole_share_leaves_nothing_and_counts_what_was_not_zero_before():
    cache = _ones(tokens=10)
    cache.store[0, "keys"][:, :4] = 0
    made = kv_cache_zero(cache, _rng(), share=1.0)
    assert not any(tensor.any() for tensor in cache.store.values())
    assert made.achieved["zeroed_elements"] == 6 * 4 * 10 * 8 - 4 * 4 * 8
    assert kv_cache_zero(cache, _rng(), share=1.0) is NOT_NOW, "there is nothing left to zero"


@pytest.mark.parametrize("unit", ["tokens", "elements"])
def test_a_larger_share_covers_a_smaller_one(unit: str):
    small, large = _ones(), _ones()
    kv_cache_zero(small, _rng(), share=0.1, unit=unit)
    kv_cache_zero(large, _rng(), share=0.6, unit=unit)
    assert all((large.store[place][small.store[place] == 0] == 0).all() for place in small.store)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_zero_is_the_pattern_of_plus_zero_and_the_rest_keeps_its_bits(dtype: torch.dtype):
    cache = SampleKvCache.make(dtype, tokens=100)
    if dtype.is_floating_point:
        cache.store[0, "keys"][0, :50] = torch.full((50, 8), math.nan)
    before = {place: tensor.clone() for place, tensor in cache.store.items()}
    kv_cache_zero(cache, _rng(), share=0.5, unit="elements")
    for place, tensor in cache.store.items():
        width = tensor.element_size()
        old, new = ([raw(t)[i : i + width] for i in range(0, t.nbytes, width)] for t in (before[place], tensor))
        changed = [n for o, n in zip(old, new, strict=True) if o != n]
        assert changed and set(changed) == {bytes(width)}
