"""kv_cache_nonfinite: what is written, how often, and what attention makes of a single one."""

import math

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_nonfinite import kv_cache_nonfinite
from tests.contract.engine_samples import SampleKvCache, name_of

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2]


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "kv_cache_nonfinite")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_the_value_stands_at_that_share_of_the_places(dtype: torch.dtype, value: str):
    cache = SampleKvCache.make(dtype, tokens=4000)
    made = kv_cache_nonfinite(cache, _rng(), share=0.02, value=value, which="both")
    found = torch.cat([tensor.double().reshape(-1) for tensor in cache.store.values()])
    wrong = found[~found.isfinite()]
    assert wrong.isnan().all() if value == "nan" else (wrong == float(value)).all()
    assert wrong.numel() == made.achieved["nonfinite_values"]
    assert abs(wrong.numel() - 0.02 * found.numel()) < 4.5 * math.sqrt(0.02 * 0.98 * found.numel())


def test_e4m3_takes_nan_alone_and_int8_nothing():
    cache = SampleKvCache.make(torch.float8_e4m3fn, tokens=500)
    made = kv_cache_nonfinite(cache, _rng(), share=0.1)
    assert made.achieved["nonfinite_values"] == sum(int(t.float().isnan().sum()) for t in cache.store.values())
    for dtype, value, has in ((torch.float8_e4m3fn, "inf", "NaN alone"), (torch.int8, "nan", "neither NaN nor")):
        refused = SampleKvCache.make(dtype)
        with pytest.raises(InvalidParams, match=f"value='{value}' cannot stand in a cache of {name_of(dtype)}.*{has}"):
            kv_cache_nonfinite(refused, _rng(), share=1.0, value=value)
        assert not refused.undo


def test_values_alone_are_poisoned_by_default_and_one_makes_its_head_s_every_output_nan():
    cache = SampleKvCache.make(tokens=64)
    kv_cache_nonfinite(cache, _rng(), share=0.002, layers="0")
    keys, values = cache.store[0, "keys"], cache.store[0, "values"]
    poisoned = values.isnan().any(dim=(1, 2))
    assert keys.isfinite().all() and poisoned.any() and not poisoned.all()
    query = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(2))
    output = torch.nn.functional.scaled_dot_product_attention(query, keys, values)
    assert torch.equal(output.isnan().any(dim=-1).all(dim=-1), poisoned)
    assert output[~poisoned].isfinite().all()


def test_a_larger_share_covers_a_smaller_one():
    small, large = SampleKvCache.make(tokens=2000), SampleKvCache.make(tokens=2000)
    kv_cache_nonfinite(small, _rng(), share=0.01)
    kv_cache_nonfinite(large, _rng(), share=0.2)
    assert all(large.store[place][small.store[place].isnan()].isnan().all() for place in small.store)


def test_too_small_a_share_for_any_element_passes_the_occasion():
    cache = SampleKvCache.make()
    assert kv_cache_nonfinite(cache, _rng(), share=1e-9) is NOT_NOW
    assert not cache.undo
