"""Observations of canaries against clean references: what is kept and answered, and that nothing is unless asked."""

import json
import math
import threading

import pytest
import torch

from chaos_mm.agent.measuring import ENVIRONMENT, Measures, Reference
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.embedding_shift import embedding_shift
from tests.contract.engine_samples_embedding import EmbeddingTap, Tower, TowerEmbedding
from tests.core.samples import Clock

BOTH = frozenset({"attention", "embedding"})


def _rows(seed: int, rows: int = 16, dim: int = 64) -> torch.Tensor:
    return 2 + 3 * torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def test_a_reference_is_the_statistics_of_all_elements_and_rows():
    reference, outputs = Reference(), [_rows(n, rows=4 + n) for n in range(5)]
    assert reference.to_json() == {"mean": 0.0, "std": 0.0, "count": 0.0} and reference.row is None
    for output in outputs:
        reference.add(output)
    together = torch.cat(outputs).double()
    assert reference.to_json() == pytest.approx(
        {"mean": float(together.mean()), "std": float(together.std(correction=0)), "count": 5.0}, rel=1e-9
    )
    assert torch.allclose(reference.row, together.mean(0))


@pytest.mark.parametrize("bad", [torch.full((2, 64), math.nan), torch.ones(2, 63), torch.ones(0, 64)], ids=str)
def test_a_reference_takes_no_poison_and_no_other_width(bad: torch.Tensor):
    reference = Reference()
    reference.add(_rows(1))
    before = reference.to_json()
    reference.add(bad)
    assert reference.to_json() == before


def test_nothing_is_measured_unless_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    measured = Measures.from_environment()
    assert not measured.wants("attention") and not measured.wants("embedding")
    measured.observe_attention(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4), 0)
    measured.observe_embedding("projector", _rows(1), clean=True)
    assert measured.facts() == {}


def test_the_environment_asks_for_kinds_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ENVIRONMENT, " embedding , attention")
    assert Measures.from_environment().kinds == BOTH
    monkeypatch.setenv(ENVIRONMENT, "embedding,feelings")
    with pytest.raises(InvalidParams, match="'feelings' cannot be measured; there are: attention, embedding"):
        Measures.from_environment()


def _value(measured: Measures, name: str) -> float:
    (fact,) = measured.facts()[name]
    return float(fact["value"])


def _clean(measured: Measures, count: int = 40) -> None:
    for n in range(count):
        measured.observe_embedding("projector", _rows(n), medium=f"m-{n}", clean=True)


@pytest.mark.parametrize("dose", [0.25, 0.82, 2.0])
def test_the_fault_at_a_dose_is_measured_as_that_dose(dose: float):
    clock = Clock()
    measured = Measures(BOTH, clock=clock)
    _clean(measured)
    clock.now += 60
    for n in range(40):
        value = TowerEmbedding("r-1", _rows(n), EmbeddingTap(Tower()))
        embedding_shift(value, Rng.derive(1, "r", "0", "embedding_shift"), shift_sigma=dose)
        measured.observe_embedding("projector", value.tap.handed_on["r-1"])
    wanted = {"value": pytest.approx(dose, rel=0.02), "unit": "sigma", "samples": 40, "site": "projector/image"}
    assert measured.facts()["embedding_shift_sigma"] == [wanted]


def test_clean_runs_read_the_floor_and_a_media_swap_flips():
    clock = Clock()
    measured = Measures(BOTH, clock=clock)
    _clean(measured)
    assert _value(measured, "embedding_shift_sigma") == pytest.approx(0, abs=1e-6)
    assert _value(measured, "alignment_flip_ratio") == 0
    clock.now += 60
    for n in range(10):  # every other one is answered from its neighbour's picture
        measured.observe_embedding("projector", _rows(n + n % 2), medium=f"m-{n}")
    assert _value(measured, "alignment_flip_ratio") == 0.5
    pooled = [_rows(n).double().mean(0) for n in range(11)]
    cosines = [float(torch.nn.functional.cosine_similarity(pooled[n + n % 2], pooled[n], dim=0)) for n in range(10)]
    assert _value(measured, "alignment_cosine") == pytest.approx(sum(cosines) / 10, abs=1e-5)


def test_what_came_before_a_lease_is_not_averaged_with_what_came_under_it():
    measured = Measures(BOTH, clock=Clock())
    _clean(measured)
    for n in range(4):
        measured.observe_embedding("projector", _rows(n) + 30)
    (fact,) = measured.facts()["embedding_shift_sigma"]
    assert fact["samples"] == 4 and fact["value"] == pytest.approx(10, rel=0.05)
    measured.observe_embedding("projector", _rows(5), clean=True)
    (fact,) = measured.facts()["embedding_shift_sigma"]
    assert fact["samples"] == 1 and fact["value"] < 1


def test_one_lease_is_not_averaged_with_the_one_before_it():
    """Two leases back to back, as two doses are: nothing clean was seen between them."""
    measured = Measures(frozenset({"embedding"}))
    _clean(measured)
    for n in range(20):
        measured.observe_embedding("projector", _rows(n), under=(1,))
    for n in range(20):
        measured.observe_embedding("projector", _rows(n) + 30, under=(2,))
    assert measured.facts()["embedding_shift_sigma"][0]["samples"] == 20
    assert _value(measured, "embedding_shift_sigma") > 29 / _rows(1).std()


def test_poison_is_counted_and_leaves_the_other_measures_finite():
    measured = Measures(BOTH, clock=Clock())
    _clean(measured)
    poisoned = _rows(3)
    poisoned[2, 5:8] = torch.nan
    measured.observe_embedding("projector", poisoned)
    assert _value(measured, "nonfinite_count") == 3
    json.dumps(measured.facts(), allow_nan=False)


def test_modalities_and_places_are_kept_apart():
    measured = Measures(BOTH, clock=Clock())
    for n in range(4):
        measured.observe_embedding("projector", _rows(n), clean=True)
        measured.observe_embedding("projector", 10 + _rows(n), modality="audio", clean=True)
        measured.observe_embedding("vision", _rows(n, dim=8), clean=True)
    shifts = {fact["site"]: fact["value"] for fact in measured.facts()["embedding_shift_sigma"]}
    assert set(shifts) == {"projector/image", "projector/audio", "vision/image"}
    assert max(shifts.values()) < 1e-6


def test_an_absent_fact_is_absent_and_old_observations_do_not_count():
    clock = Clock()
    measured = Measures(BOTH, window_seconds=10, clock=clock)
    measured.observe_embedding("projector", _rows(1))
    assert set(measured.facts()) == {"nonfinite_count"}, "no reference, no shift"
    measured.observe_attention(torch.zeros(2, 4, 4), torch.zeros(2, 4, 4), 3)
    measured.observe_attention(torch.zeros(2, 4, 4), torch.zeros(2, 4, 4), 1)
    uniform = {"value": pytest.approx(1), "unit": "of ln n", "samples": 1}
    assert measured.facts()["attention_entropy_ratio"] == [
        {**uniform, "site": "layer.1"},
        {**uniform, "site": "layer.3"},
    ]
    clock.now += 10.1
    assert measured.facts() == {}


def test_a_decode_step_of_one_query_and_one_key_tells_only_that_it_was_finite():
    measured = Measures(BOTH, clock=Clock())
    measured.observe_attention(torch.zeros(2, 1, 4), torch.zeros(2, 1, 4), 0)
    assert set(measured.facts()) == {"nonfinite_count"}


def test_memory_is_bounded_and_threads_may_observe_at_once():
    measured = Measures(BOTH)

    def observe() -> None:
        for n in range(100):
            measured.observe_embedding("projector", _rows(n), medium=f"m-{n}", clean=True)
            measured.observe_attention(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4), 0)

    threads = [threading.Thread(target=observe) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {fact["samples"] for told in measured.facts().values() for fact in told} <= set(range(1, 65))
