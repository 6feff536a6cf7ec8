"""qformer_perturbation on a real Q-Former of transformers, and against the definitions of its three kinds."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from transformers import Blip2QFormerConfig, Blip2QFormerModel

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.qformer_perturbation import qformer_perturbation
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding

pytestmark = pytest.mark.model
KINDS = ["noise", "shift", "permute"]


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "qformer_perturbation")


def _queries() -> torch.Tensor:
    """The 32 query outputs (32, 64) of a randomly initialised Q-Former that looked at random patches."""
    config = Blip2QFormerConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, encoder_hidden_size=64
    )
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(2)
        model = Blip2QFormerModel(config).eval()
        return model(query_embeds=torch.randn(1, 32, 64), encoder_hidden_states=torch.randn(1, 16, 64))[0][0].clone()


QUERIES = _queries()


def _value(tensor: torch.Tensor = QUERIES) -> TowerEmbedding:
    return TowerEmbedding("r-1", tensor, EmbeddingTap(Tower()), role="qformer", module="qformer")


def _after(value: TowerEmbedding, request: str = "r-1", **params: Any) -> torch.Tensor:
    qformer_perturbation(value, _rng(request), **params)
    return value.tap.handed_on["r-1"]


@pytest.mark.parametrize("kind", ["noise", "shift"])
@pytest.mark.parametrize("amount", [0.25, 2.0])
def test_noise_and_shift_have_the_stated_root_mean_square(kind: str, amount: float):
    moved = (_after(_value(), kind=kind, amount=amount) - QUERIES).double()
    std = float(QUERIES.double().std(correction=0))
    # The noise's own width scatters by 1 / sqrt(2 n); the shift is scaled exactly.
    assert float(moved.square().mean().sqrt()) == pytest.approx(amount * std, rel=0.06 if kind == "noise" else 1e-4)


def test_noise_is_normal_and_a_shift_the_same_for_all_queries():
    noise = _after(_value(), kind="noise", amount=1.0) - QUERIES
    assert stats.kstest((noise / noise.std()).reshape(-1).numpy(), "norm").pvalue > 1e-3
    shift = _after(_value(), kind="shift", amount=1.0) - QUERIES
    assert torch.allclose(shift, shift[0].expand_as(shift), atol=1e-5)


@pytest.mark.parametrize(("amount", "moved"), [(0.001, 2), (0.25, 8), (0.5, 16), (1.0, 32), (4.0, 32)])
def test_permuted_queries_are_the_same_rows_none_of_the_chosen_in_its_place(amount: float, moved: int):
    value = _value()
    made = qformer_perturbation(value, _rng(), kind="permute", amount=amount)
    new = value.tap.handed_on["r-1"]
    order = [int(torch.nonzero((row == QUERIES).all(-1))) for row in new]
    assert sorted(order) == list(range(32)), "contents stay whole, each once"
    assert sum(place != i for i, place in enumerate(order)) == moved == made.achieved["queries_moved"]


def test_one_query_cannot_change_places():
    assert qformer_perturbation(_value(QUERIES[:1]), _rng(), kind="permute") is NOT_NOW


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_those_of_what_was_handed_on(kind: str):
    value = _value(QUERIES.bfloat16())
    made = qformer_perturbation(value, _rng(), kind=kind, amount=1.0)
    new, clean = value.tap.handed_on["r-1"].double(), value.tensor.double()
    assert value.tap.handed_on["r-1"].dtype is torch.bfloat16
    rms = float((new - clean).square().mean().sqrt() / clean.std(correction=0))
    cosine = float(((new * clean).sum(-1) / (new.norm(dim=-1) * clean.norm(dim=-1))).mean())
    assert made.achieved["rms_sigma"] == pytest.approx(rms, rel=1e-3)
    assert made.achieved["cosine"] == pytest.approx(cosine, abs=1e-3)
    assert all(math.isfinite(figure) for figure in made.achieved.values())


@pytest.mark.parametrize("kind", KINDS)
def test_each_request_has_its_own_draw(kind: str):
    first, again, other = (_after(_value(), request, kind=kind) for request in ("r-1", "r-1", "r-2"))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("kind", KINDS)
def test_another_place_and_dose_zero_are_let_pass(kind: str):
    value = _value()
    assert qformer_perturbation(value, _rng(), kind=kind, amount=0.0) is NOT_NOW
    assert qformer_perturbation(value, _rng(), kind=kind, place="projector") is NOT_NOW
    assert value.tap.handed_on == {}


def test_a_reference_without_a_spread_is_refused_by_name():
    with pytest.raises(ValueError, match=r"qformer_perturbation: the reference at 'qformer'"):
        qformer_perturbation(_value(torch.ones(4, 8)), _rng())
