"""kv_cache_noise against the normal law, head by head, and against the rounding of each format."""

import math
from typing import Any

import pytest
import torch
from scipy import stats

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_noise import kv_cache_noise
from tests.contract.engine_samples import DTYPES, SampleKvCache, name_of


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "kv_cache_noise")


def _cache(dtype: torch.dtype = torch.float32, **sizes: int) -> SampleKvCache:
    """Two layers of three heads whose values are 1, 10 and 0.1 wide."""
    cache = SampleKvCache.make(dtype, **{"layers": 2, "heads": 3, "tokens": 1000, "dim": 64, **sizes})
    for place, tensor in cache.store.items():
        cache.store[place] = (tensor.float() * torch.tensor([1.0, 10.0, 0.1])[:, None, None]).to(dtype)
    return cache


def _noise(cache: SampleKvCache, sigma: float, request: str = "r-1", **place: Any) -> dict[Any, torch.Tensor]:
    before = {place: tensor.double() for place, tensor in cache.store.items()}
    kv_cache_noise(cache, _rng(request), sigma=sigma, **place)
    return {place: tensor.double() - before[place] for place, tensor in cache.store.items()}


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_noise_is_normal_and_as_wide_as_sigma_times_the_head_s_own_deviation(sigma: float):
    cache = _cache()
    stds = {place: tensor.double().flatten(1).std(dim=1) for place, tensor in cache.store.items()}
    for place, noise in _noise(cache, sigma).items():
        for head, std in zip(noise, stds[place], strict=True):
            draws = (head / (sigma * std)).reshape(-1).numpy()
            assert stats.kstest(draws[:20_000], "norm").pvalue > 1e-4
            assert draws.std() == pytest.approx(1, abs=0.02)
            assert abs(draws.mean()) < 4 / math.sqrt(draws.size)


def test_parts_heads_and_requests_draw_independently():
    first, other = _noise(_cache(), 1.0), _noise(_cache(), 1.0, "r-2")
    streams = [head.reshape(-1) for noise in (first, other) for part in noise.values() for head in part]
    matrix = torch.corrcoef(torch.stack(streams)).fill_diagonal_(0)
    assert matrix.abs().max() < 5 / math.sqrt(streams[0].numel())


def test_a_larger_dose_is_the_same_noise_larger():
    small, large = _noise(_cache(), 0.5), _noise(_cache(), 1.5)
    for place in small:
        torch.testing.assert_close(3 * small[place], large[place], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_format_takes_it_and_the_achieved_width_is_after_the_cast(dtype: torch.dtype):
    cache = SampleKvCache.make(dtype, tokens=2000)
    before = {place: tensor.double() for place, tensor in cache.store.items()}
    made = kv_cache_noise(cache, _rng(), sigma=0.5).achieved
    widths = [
        (cache.store[place].double() - before[place]).square().mean().sqrt() / before[place].std() for place in before
    ]
    assert made["noise_sigma"] == pytest.approx(float(sum(widths) / len(widths)), rel=0.01)
    assert made["noise_sigma"] == pytest.approx(0.5, rel=0.03)
    assert made["parts"] == 6 and made["elements"] == 6 * 4 * 2000 * 8


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(torch.float16, 65504.0), (torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0), (torch.int8, 127.0)],
    ids=lambda value: name_of(value) if isinstance(value, torch.dtype) else "",
)
def test_a_narrow_format_stops_at_its_largest_value_and_is_never_made_infinite(dtype: torch.dtype, largest: float):
    tensor = torch.tensor([largest, -largest], dtype=torch.float32).to(dtype).repeat(500).view(1, 125, 8)
    cache = SampleKvCache({(0, "keys"): tensor})
    kv_cache_noise(cache, _rng(), sigma=5.0)
    after = cache.store[0, "keys"].double()
    assert after.isfinite().all()
    assert after.max() == largest and after.min() == (-128 if dtype is torch.int8 else -largest)


def test_poison_that_stands_there_already_does_not_spread():
    cache = _cache()
    cache.store[0, "keys"][0, 0, :5] = math.nan
    made = kv_cache_noise(cache, _rng(), sigma=0.5)
    assert int(cache.store[0, "keys"].isnan().sum()) == 5
    assert math.isfinite(made.achieved["noise_sigma"])


def test_a_head_of_one_value_has_no_width_and_stays():
    cache = SampleKvCache({(0, "keys"): torch.full((2, 10, 8), 3.0)})
    kv_cache_noise(cache, _rng(), sigma=2.0)
    assert torch.equal(cache.store[0, "keys"], torch.full((2, 10, 8), 3.0))


@pytest.mark.parametrize(
    ("output_index", "cached", "after", "strikes"),
    [(0, 0, 1, False), (1, 0, 1, True), (7, 0, 8, False), (9, 0, 8, True), (0, 0, 0, False), (0, 8, 0, True)]
    + [(1, 8, 0, False)],
)
def test_when_it_strikes(output_index: int, cached: int, after: int, strikes: bool):
    cache = SampleKvCache.make(output_index=output_index, cached_tokens=cached)
    before = cache.bytes()
    made = kv_cache_noise(cache, _rng(), sigma=1.0, after_tokens=after)
    assert (made is not NOT_NOW) == strikes == (cache.bytes() != before)


def test_where_it_strikes():
    noise = _noise(_cache(), 1.0, layers="-1", heads="0,2", positions="last:10", which="values")
    struck = noise.pop((1, "values"))
    assert not any(part.any() for part in noise.values())
    assert struck[[0, 2], -10:].all() and not struck[1].any() and not struck[:, :-10].any()


def test_a_place_that_the_engine_lacks_is_refused_before_anything_is_written():
    cache = _cache()
    for place in ({"layers": "0-9"}, {"heads": "3"}, {"positions": "1000"}, {"layers": "some"}):
        with pytest.raises(InvalidParams, match=next(iter(place))):
            kv_cache_noise(cache, _rng(), **place)
    assert not cache.undo


def test_a_view_that_is_not_contiguous_is_changed_in_place():
    store = torch.randn(6, 3, 40, 16, generator=torch.Generator().manual_seed(1))
    before = store.clone()
    cache = SampleKvCache({(0, "keys"): store[:, 1, :, ::2]})
    kv_cache_noise(cache, _rng(), sigma=1.0)
    changed = store != before
    assert changed[:, 1, :, ::2].all()
    assert not changed[:, [0, 2]].any() and not changed[:, 1, :, 1::2].any()
