"""kv_cache_misread against numpy's reading of the same bytes."""

from typing import Any

import numpy as np
import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_misread import kv_cache_misread
from tests.contract.engine_samples import DTYPES, SampleKvCache, name_of, raw


def _rng() -> Rng:
    return Rng.derive(3, "r-1", "0", "kv_cache_misread")


def _copies(cache: SampleKvCache) -> dict[Any, torch.Tensor]:
    return {place: tensor.clone() for place, tensor in cache.store.items()}


def _bfloat16(words: Any) -> Any:
    return (words.astype("<u4") << 16).view("<f4")


def test_bfloat16_read_as_float16_and_the_other_way_round():
    cache = SampleKvCache.make(torch.bfloat16, tokens=200)
    words = {place: np.frombuffer(raw(tensor), "<u2") for place, tensor in cache.store.items()}
    kv_cache_misread(cache, _rng(), what="dtype")
    for place, tensor in cache.store.items():
        wanted = torch.from_numpy(words[place].view("<f2").astype(np.float64)).to(torch.bfloat16)
        assert raw(tensor) == raw(wanted)
    cache = SampleKvCache.make(torch.float16, tokens=200)
    words = {place: np.frombuffer(raw(tensor), "<u2") for place, tensor in cache.store.items()}
    kv_cache_misread(cache, _rng(), what="dtype")
    for place, tensor in cache.store.items():
        with np.errstate(over="ignore"):
            assert raw(tensor) == _bfloat16(words[place]).astype("<f2").tobytes()


def test_float32_read_as_int32():
    cache = SampleKvCache({(0, "keys"): torch.tensor([[[1.0, -2.0, 0.0, 0.5]]])})
    kv_cache_misread(cache, _rng(), what="dtype")
    # 0x3f800000, 0xc0000000, 0, 0x3f000000
    assert cache.store[0, "keys"].reshape(-1).tolist() == [1065353216.0, -1073741824.0, 0.0, 1056964608.0]


def test_the_eight_bit_formats_read_as_each_other():
    # 0x38 is 1 in E4M3 and 0.5 in E5M2; 0x3c is 1.5 and 1; 0xb8 is minus the first.
    words = torch.tensor([0x38, 0x3C, 0xB8, 0x00], dtype=torch.uint8).view(1, 1, 4)
    for dtype, wanted in ((torch.float8_e4m3fn, [0.5, 1, -0.5, 0]), (torch.float8_e5m2, [1, 1.5, -1, 0])):
        cache = SampleKvCache({(0, "keys"): words.clone().view(dtype)})
        kv_cache_misread(cache, _rng(), what="dtype")
        assert cache.store[0, "keys"].double().reshape(-1).tolist() == wanted
    # int8 56, 60 and 127 (NaN in E4M3), rounded to the even neighbour.
    cache = SampleKvCache({(0, "keys"): torch.tensor([[[56, 60, 127, -72]]], dtype=torch.int8)})
    kv_cache_misread(cache, _rng(), what="dtype")
    assert cache.store[0, "keys"].reshape(-1).tolist() == [1, 2, 0, -1]


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_stride_is_each_head_s_numbers_in_the_order_of_the_other_axis_first(dtype: torch.dtype):
    cache = SampleKvCache.make(dtype, tokens=17)
    before = _copies(cache)
    made = kv_cache_misread(cache, _rng(), what="stride")
    changed = 0
    for place, tensor in cache.store.items():
        old, new = (t.double().numpy() for t in (before[place], tensor))
        for head in range(4):
            flat = old[head].ravel()
            wanted = [[flat[column * 17 + token] for column in range(8)] for token in range(17)]
            assert np.array_equal(new[head], np.array(wanted))
        width = tensor.element_size()
        pairs = zip(*(np.frombuffer(raw(t), f"V{width}") for t in (before[place], tensor)), strict=True)
        changed += sum(bytes(a) != bytes(b) for a, b in pairs)
    assert made.achieved["changed_elements"] == changed


def test_a_single_token_or_a_single_column_cannot_be_misread_by_stride():
    for shape in ((4, 1, 8), (4, 9, 1)):
        cache = SampleKvCache({(0, "keys"): torch.randn(shape)})
        assert kv_cache_misread(cache, _rng(), what="stride") is NOT_NOW
        assert not cache.undo


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_halves_exchanges_keys_and_values_of_the_same_place(dtype: torch.dtype):
    cache = SampleKvCache.make(dtype)
    before = _copies(cache)
    kv_cache_misread(cache, _rng(), what="halves", layers="1", heads="1-2", positions="0-3,9")
    for layer in range(3):
        for name, other in (("keys", "values"), ("values", "keys")):
            new, own, theirs = cache.store[layer, name], before[layer, name], before[layer, other]
            swapped = torch.zeros(4, 17, dtype=torch.bool)
            swapped[1:3, [0, 1, 2, 3, 9]] = layer == 1
            assert raw(new[swapped]) == raw(theirs[swapped]) and raw(new[~swapped]) == raw(own[~swapped])


def test_halves_with_one_of_them_left_out_is_refused_when_the_lease_is_asked_for():
    for which in ("keys", "values", "valuess"):
        with pytest.raises(InvalidParams, match=f"kv_cache_misread: which='{which}' is not allowed with what='halves'"):
            kv_cache_misread.check_here(kv_cache_misread.bind({"what": "halves", "which": which}))
    kv_cache_misread.check_here(kv_cache_misread.bind({"what": "stride", "which": "keys"}))


def test_halves_without_a_counterpart_passes():
    cache = SampleKvCache({(0, "keys"): torch.randn(2, 3, 4)})
    assert kv_cache_misread(cache, _rng(), what="halves") is NOT_NOW
