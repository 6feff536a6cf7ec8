"""embedding_replay: the turn before, once more, and only where nothing but its content tells."""

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_replay import embedding_replay
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding, pictures

RNG = Rng.derive(3, "r-1", "0", "embedding_replay")


def test_a_turn_sees_the_picture_of_the_turn_before():
    model, turns = Tower(), pictures(3)
    with torch.inference_mode(), EmbeddingTap(model) as tap:
        clean = [model(turn[None])[0] for turn in turns]
        tap.before = None
        tap.strike = lambda value: embedding_replay(value, RNG)
        seen = [model(turn[None])[0] for turn in turns]
        tap.strike = None
        after = [model(turn[None])[0] for turn in turns]
    assert torch.equal(seen[0], clean[0]), "nobody came before the first"
    assert torch.equal(seen[1], clean[0])
    assert torch.equal(seen[2], clean[1]), "what is replayed is clean, never a replay of a replay"
    assert all(torch.equal(a, c) for a, c in zip(after, clean, strict=True))
    cosine = torch.nn.functional.cosine_similarity(clean[1].double(), clean[0].double(), dim=-1).mean()
    assert tap.answers[0] is NOT_NOW
    assert tap.answers[1].achieved["cosine"] == pytest.approx(float(cosine), abs=1e-5)
    assert tap.answers[1].achieved["rows"] == 16


def _value(before: torch.Tensor | None, dtype: torch.dtype = torch.float32) -> TowerEmbedding:
    tap = EmbeddingTap(Tower())
    tap.before = before
    return TowerEmbedding("r-1", torch.arange(12.0).reshape(4, 3).to(dtype), tap)


@pytest.mark.parametrize(
    "before", [None, torch.zeros(3, 3), torch.zeros(4, 2), torch.arange(12.0).reshape(4, 3)], ids=str
)
def test_nobody_another_shape_and_the_same_picture_are_let_pass(before: torch.Tensor | None):
    value = _value(before)
    assert embedding_replay(value, RNG) is NOT_NOW
    assert value.tap.handed_on == {}


def test_another_place_is_let_pass():
    value = _value(torch.zeros(4, 3))
    assert embedding_replay(value, RNG, place="vision") is NOT_NOW
    assert value.tap.handed_on == {}


def test_what_is_handed_on_is_a_copy_in_the_engine_s_type():
    before = torch.ones(4, 3, dtype=torch.float32)
    value = _value(before, torch.bfloat16)
    embedding_replay(value, RNG)
    new = value.tap.handed_on["r-1"]
    assert new.dtype is torch.bfloat16
    new.zero_()
    assert torch.equal(before, torch.ones(4, 3))


def test_live_traffic_may_not_suffer_it():
    assert embedding_replay.carries_content
