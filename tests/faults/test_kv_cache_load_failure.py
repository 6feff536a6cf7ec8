"""kv_cache_load_failure: what a load brings, and what the engine is told."""

import pytest
import torch

from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_load_failure import kv_cache_load_failure
from tests.contract.engine_samples import SampleKvCache, SampleKvLoad


def _load() -> SampleKvLoad:
    target = SampleKvCache.make(seed=2)
    for tensor in target.store.values():
        tensor.zero_()
    return SampleKvLoad(SampleKvCache.make(seed=1), target)


def test_a_load_that_is_let_be_brings_everything():
    load = _load()
    assert load.run() == [] and load.target.bytes() == load.source.bytes()


@pytest.mark.parametrize("declared", [True, False])
def test_a_failed_load_brings_nothing_and_is_reported_or_not(declared: bool):
    load = _load()
    rng = Rng.derive(3, "r-1", "0", "kv_cache_load_failure")
    made = kv_cache_load_failure(load, rng, declared=declared, delay_seconds=1.5)
    assert load.run() == (["r-1"] if declared else [])
    assert not any(torch.count_nonzero(tensor) for tensor in load.target.store.values())
    assert load.delay_seconds == 1.5
    assert made.achieved == {"tokens": 17.0}
