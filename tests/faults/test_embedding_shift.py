"""embedding_shift against the definition of its dose, the sphere it draws from, and a real hooked tower."""

import math
from typing import Any

import pytest
import torch
from scipy import stats

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.fault import Outcome
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_shift import embedding_shift
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding, pictures


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "embedding_shift")


def _one(rows: int = 64, dim: int = 512, dtype: torch.dtype = torch.float32, module: str = "projector") -> Any:
    """An output of known statistics, and what the fault handed on of it."""
    tap = EmbeddingTap(Tower())
    tensor = (3.0 * torch.randn(rows, dim, generator=torch.Generator().manual_seed(1))).to(dtype)
    tap.reference.add(tensor)
    return TowerEmbedding("r-1", tensor, tap, module=module)


def _moved(value: Any, request: str = "r-1", **params: Any) -> torch.Tensor:
    made = embedding_shift(value, _rng(request), **params)
    assert isinstance(made, Outcome)
    return (value.tap.handed_on["r-1"].double() - value.tensor.double())[0]


@pytest.mark.parametrize("direction", ["place", "request", "constant"])
@pytest.mark.parametrize("dose", [0.25, 0.75, 0.82, 3.0])
def test_root_mean_square_is_the_dose_times_the_reference_s_std(direction: str, dose: float):
    value = _one()
    moved = _moved(value, shift_sigma=dose, direction=direction)
    std = float(value.tensor.double().std(correction=0))
    assert float(moved.norm()) == pytest.approx(dose * std * math.sqrt(512), rel=1e-5)


def test_every_row_moves_by_the_same_vector_and_constant_by_one_number():
    value = _one()
    _moved(value, direction="constant", shift_sigma=1.0)
    rows = value.tap.handed_on["r-1"] - value.tensor
    assert torch.allclose(rows, rows[0].expand_as(rows), atol=1e-5)
    assert float(rows.std()) < 1e-5 and float(rows.mean()) == pytest.approx(
        float(value.tensor.std(correction=0)), rel=1e-5
    )


def test_the_place_s_direction_is_its_own_whatever_the_request_and_the_lease_s_seed():
    first, second = (_moved(_one(), request) for request in ("r-1", "r-2"))
    assert torch.allclose(first, second, atol=1e-5)
    others = [_moved(_one(module="vision")), _moved(_one(), direction_seed=1)]
    for other in others:
        assert abs(float(torch.nn.functional.cosine_similarity(first, other, dim=0))) < 5 / math.sqrt(512)


def test_a_request_s_direction_is_drawn_from_the_lease_s_seed_and_the_request():
    first, again, other = (_moved(_one(), request, direction="request") for request in ("r-1", "r-1", "r-2"))
    assert torch.equal(first, again)
    assert abs(float(torch.nn.functional.cosine_similarity(first, other, dim=0))) < 5 / math.sqrt(512)


def test_directions_are_normal_before_they_are_scaled():
    moved = _moved(_one(rows=2, dim=20_000), direction="request", shift_sigma=1.0)
    assert stats.kstest((moved / moved.std()).numpy(), "norm").pvalue > 1e-3


def test_without_a_reference_the_output_s_own_std_counts():
    value = TowerEmbedding("r-1", 0.5 * torch.randn(64, 512), EmbeddingTap(Tower()))
    assert float(_moved(value, shift_sigma=2.0).square().mean().sqrt()) == pytest.approx(
        2 * float(value.tensor.std(correction=0)), rel=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_figures_are_of_what_was_handed_on_after_rounding(dtype: torch.dtype):
    value = _one(dtype=dtype)
    made = embedding_shift(value, _rng(), shift_sigma=0.82)
    new, clean = value.tap.handed_on["r-1"], value.tensor
    assert new.dtype is dtype and new.shape == clean.shape
    std = float(clean.double().std(correction=0))
    rms = float((new.double() - clean.double()).square().mean().sqrt())
    assert made.achieved["shift_sigma"] == pytest.approx(rms / std, rel=1e-3)
    assert made.achieved["shift_sigma"] == pytest.approx(0.82, rel=0.01)
    cosines = [float((a @ b) / (a.norm() * b.norm())) for a, b in zip(clean.double(), new.double(), strict=True)]
    assert made.achieved["cosine"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-4)
    assert made.achieved["nonfinite_values"] == 0


def test_an_overflow_of_the_engine_s_type_is_counted():
    value = _one(dtype=torch.float16)
    value.tensor.fill_(65_000.0)
    made = embedding_shift(value, _rng(), shift_sigma=8.0, direction="constant")
    assert made.achieved["nonfinite_values"] == 0  # a std of 3 is below half a step of 65 000
    value.tap.reference.add(torch.full((64, 512), 60_000.0))
    made = embedding_shift(value, _rng(), shift_sigma=8.0, direction="constant")
    assert made.achieved["nonfinite_values"] == value.tensor.numel()
    assert all(math.isfinite(figure) for figure in made.achieved.values())


def test_another_place_and_dose_zero_are_let_pass_untouched():
    value = _one()
    assert embedding_shift(value, _rng(), place="vision") is NOT_NOW
    assert embedding_shift(value, _rng(), shift_sigma=0.0) is NOT_NOW
    assert embedding_shift.is_noop(embedding_shift.bind({"shift_sigma": 0}))
    assert value.tap.handed_on == {}


def test_a_reference_without_spread_is_refused_by_name():
    value = TowerEmbedding("r-1", torch.ones(4, 8), EmbeddingTap(Tower()))
    with pytest.raises(ValueError, match=r"embedding_shift: the reference at 'projector' .* deviation 0\.0"):
        embedding_shift(value, _rng())


def test_the_clean_tensor_is_not_written_to():
    value = _one()
    before = value.tensor.clone()
    _moved(value)
    assert torch.equal(value.tensor, before)


def test_a_real_tower_s_victim_moves_and_its_neighbours_do_not():
    model, batch = Tower(), pictures(3)
    with torch.inference_mode(), EmbeddingTap(model) as tap:
        clean = model(batch)
        tap.strike = lambda value: embedding_shift(value, _rng(value.request)) if value.request == "r-1" else NOT_NOW
        hurt = model(batch)
        tap.strike = None
        after = model(batch)
    assert torch.equal(hurt[0], clean[0]) and torch.equal(hurt[2], clean[2]) and torch.equal(after, clean)
    std = float(clean.double().std(correction=0))
    assert float((hurt[1] - clean[1]).double().square().mean().sqrt()) / std == pytest.approx(0.82, rel=1e-4)


def test_the_direction_of_a_place_is_pinned():
    """A replay must move the same way in every release."""
    moved = _moved(_one(rows=4, dim=8), shift_sigma=1.0)
    signs = "".join("+" if x > 0 else "-" for x in moved.tolist())
    assert signs == "-++-++++"
