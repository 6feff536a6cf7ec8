"""embedding_noise against the normal law, the closed form of its cosine, and a real hooked tower."""

import math
from typing import Any

import pytest
import torch
from scipy import stats

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_noise import embedding_noise
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding, pictures


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "embedding_noise")


def _value(dtype: torch.dtype = torch.float32, std: float = 2.0, mean: float = 0.0) -> TowerEmbedding:
    tensor = mean + std * torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    tap = EmbeddingTap(Tower())
    tap.reference.add(tensor)
    return TowerEmbedding("r-1", tensor.to(dtype), tap)


def _noise(value: TowerEmbedding, request: str = "r-1", **params: Any) -> Any:
    embedding_noise(value, _rng(request), **params)
    return (value.tap.handed_on["r-1"].double() - value.tensor.double()).reshape(-1).numpy()


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_noise_is_normal_of_the_stated_width(sigma: float):
    value = _value()
    noise = _noise(value, sigma=sigma) / (sigma * float(value.tensor.double().std(correction=0)))
    assert stats.kstest(noise[:20_000], "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 3 / math.sqrt(noise.size)
    assert noise.std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_cosine_is_the_closed_form_s(sigma: float):
    made = embedding_noise(_value(), _rng(), sigma=sigma)
    assert made.achieved["cosine"] == pytest.approx(1 / math.sqrt(1 + sigma**2), abs=0.01)
    assert made.achieved["noise_sigma"] == pytest.approx(sigma, rel=0.01)


def test_a_mean_far_from_zero_does_not_widen_the_noise():
    value = _value(mean=40.0)
    assert _noise(value, sigma=1.0).std() == pytest.approx(2.0, rel=0.02)


def test_the_same_request_gets_the_same_noise_and_another_an_independent_one():
    first, again, other = (_noise(_value(), request) for request in ("r-1", "r-1", "r-2"))
    assert (first == again).all()
    assert abs(stats.pearsonr(first, other).statistic) < 4 / math.sqrt(first.size)


def test_a_larger_dose_is_the_same_noise_larger():
    low, high = _noise(_value(), sigma=0.5), _noise(_value(), sigma=1.0)
    assert abs(high - 2 * low).max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_type_and_shape_stay(dtype: torch.dtype):
    value = _value(dtype)
    embedding_noise(value, _rng())
    new = value.tap.handed_on["r-1"]
    assert new.dtype is dtype and new.shape == value.tensor.shape


def test_overflow_is_counted_and_figures_stay_finite():
    value = _value(torch.float16, std=20_000.0)
    value.tensor.nan_to_num_(0.0)
    made = embedding_noise(value, _rng(), sigma=8.0)
    bad = int((~torch.isfinite(value.tap.handed_on["r-1"])).sum())
    assert bad > 0 and made.achieved["nonfinite_values"] == bad
    assert all(math.isfinite(figure) for figure in made.achieved.values())


def test_another_place_and_dose_zero_are_let_pass():
    value = _value()
    assert embedding_noise(value, _rng(), place="vision") is NOT_NOW
    assert embedding_noise(value, _rng(), sigma=0.0) is NOT_NOW
    assert value.tap.handed_on == {}


@pytest.mark.parametrize("fill", [0.0, math.nan])
def test_a_reference_without_a_spread_is_refused_by_name(fill: float):
    value = TowerEmbedding("r-1", torch.full((4, 8), fill), EmbeddingTap(Tower()))
    with pytest.raises(ValueError, match="embedding_noise: the reference at 'projector' has the standard deviation"):
        embedding_noise(value, _rng())


def test_a_real_tower_s_victim_changes_and_its_neighbours_do_not():
    model, batch = Tower(), pictures(3)
    with torch.inference_mode(), EmbeddingTap(model) as tap:
        clean = model(batch)
        tap.strike = lambda value: embedding_noise(value, _rng()) if value.request == "r-1" else NOT_NOW
        hurt = model(batch)
        tap.strike = None
        assert torch.equal(model(batch), clean)
    assert [torch.equal(a, b) for a, b in zip(hurt, clean, strict=True)] == [True, False, True]
