"""embedding_rows: which rows are missing or stand twice."""

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.fault import Effect
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_rows import embedding_rows
from tests.contract.engine_samples_embedding import PATCHES, EmbeddingTap, Tower, TowerEmbedding, pictures

RNG = Rng.derive(3, "r-1", "0", "embedding_rows")


def _rows(count: int, **params: object) -> list[float]:
    """Which rows were handed on, the clean ones being numbered from 0."""
    value = TowerEmbedding("r-1", torch.arange(float(count))[:, None].repeat(1, 3), EmbeddingTap(Tower()))
    made = embedding_rows(value, RNG, **params)
    new = value.tap.handed_on["r-1"]
    assert made.achieved == {"rows_before": count, "rows_after": len(new)}
    return new[:, 0].tolist()


def test_dropped_rows_are_the_last():
    assert _rows(6, rows=2) == [0, 1, 2, 3]
    assert _rows(6, rows=500) == [0]


@pytest.mark.parametrize(
    ("count", "rows", "wanted"),
    [(4, 1, [0, 1, 2, 3, 3]), (4, 3, [0, 1, 2, 3, 1, 2, 3]), (2, 5, [0, 1, 1, 0, 1, 0, 1]), (1, 2, [0, 0, 0])],
)
def test_duplicated_rows_are_the_last_and_go_round(count: int, rows: int, wanted: list[int]):
    assert _rows(count, rows=rows, action="duplicate") == wanted


def test_one_row_cannot_be_dropped_and_zero_rows_are_none():
    value = TowerEmbedding("r-1", torch.ones(1, 3), EmbeddingTap(Tower()))
    assert embedding_rows(value, RNG, rows=1) is NOT_NOW
    assert embedding_rows(value, RNG, rows=0, action="duplicate") is NOT_NOW
    assert embedding_rows(value, RNG, place="vision", action="duplicate") is NOT_NOW
    assert value.tap.handed_on == {}


def test_the_declaration_says_that_rows_change():
    assert embedding_rows.effect is Effect.ROWS


@pytest.mark.parametrize(("action", "wanted"), [("drop", PATCHES - 3), ("duplicate", PATCHES + 3)])
def test_a_merge_that_counts_placeholders_notices(action: str, wanted: int):
    """As transformers and vLLM merge: rows are scattered over as many placeholders as the prompt has."""
    model, prompt = Tower(), torch.zeros(PATCHES, 32)
    placeholders = torch.ones(PATCHES, dtype=torch.bool)
    with torch.inference_mode(), EmbeddingTap(model) as tap:
        tap.strike = lambda value: embedding_rows(value, RNG, rows=3, action=action)
        rows = model(pictures(1))[0]
        assert len(rows) == wanted
        with pytest.raises(RuntimeError, match=f"{wanted}"):
            prompt[placeholders] = rows
