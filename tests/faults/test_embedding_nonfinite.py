"""embedding_nonfinite: exactly so many elements, nested doses, and what the engine's type can hold."""

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_nonfinite import embedding_nonfinite
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding, pictures

FILLS = {"nan": torch.isnan, "inf": torch.isposinf, "-inf": torch.isneginf}


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "embedding_nonfinite")


def _value(dtype: torch.dtype = torch.float32) -> TowerEmbedding:
    return TowerEmbedding("r-1", torch.randn(50, 40).to(dtype), EmbeddingTap(Tower()))


def _after(value: TowerEmbedding, request: str = "r-1", **params: object) -> torch.Tensor:
    embedding_nonfinite(value, _rng(request), **params)
    return value.tap.handed_on["r-1"]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(("share", "count"), [(1e-9, 1), (0.001, 2), (0.1, 200), (1.0, 2000)])
def test_exactly_that_share_is_written_and_the_rest_is_untouched(fill: str, share: float, count: int):
    value = _value()
    made = embedding_nonfinite(value, _rng(), share=share, fill=fill)
    new = value.tap.handed_on["r-1"]
    hit = FILLS[fill](new)
    assert int(hit.sum()) == count
    assert torch.equal(new[~hit], value.tensor[~hit])
    assert made.achieved == {"nonfinite_values": count, "share": count / 2000}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn])
def test_every_type_that_has_a_nan_takes_one(dtype: torch.dtype):
    new = _after(_value(dtype), share=0.1)
    assert new.dtype is dtype
    assert int(torch.isnan(new.float()).sum()) == 200


def test_e4m3_has_no_infinity_and_says_so():
    with pytest.raises(ValueError, match=r"embedding_nonfinite: torch.float8_e4m3fn has no inf"):
        _after(_value(torch.float8_e4m3fn), fill="inf")


def test_a_larger_share_holds_the_smaller_one_s_elements():
    value = _value()
    small, large = (torch.isnan(_after(value, share=share)) for share in (0.01, 0.2))
    assert bool((large | ~small).all())


def test_elements_are_drawn_anew_for_each_request_and_the_same_for_the_same():
    first, again, other = (torch.isnan(_after(_value(), request, share=0.1)) for request in ("r-1", "r-1", "r-2"))
    assert torch.equal(first, again)
    assert int((first & other).sum()) == pytest.approx(20, abs=17)  # 200 of 2,000 twice over, four deviations


def test_those_that_were_there_before_are_counted():
    value = _value()
    value.tensor[0] = torch.nan
    made = embedding_nonfinite(value, _rng(), share=0.001)
    assert made.achieved["nonfinite_values"] == int(torch.isnan(value.tap.handed_on["r-1"]).sum()) >= 40


def test_another_place_and_dose_zero_are_let_pass():
    value = _value()
    assert embedding_nonfinite(value, _rng(), place="vision") is NOT_NOW
    assert embedding_nonfinite(value, _rng(), share=0.0) is NOT_NOW
    assert value.tap.handed_on == {}


def test_a_real_tower_s_neighbours_stay_finite_and_equal():
    model, batch = Tower(), pictures(3)
    with torch.inference_mode(), EmbeddingTap(model) as tap:
        clean = model(batch)
        tap.strike = lambda value: embedding_nonfinite(value, _rng()) if value.request == "r-1" else NOT_NOW
        hurt = model(batch)
    assert torch.equal(hurt[0], clean[0]) and torch.equal(hurt[2], clean[2])
    assert int(torch.isnan(hurt[1]).sum()) == 1
