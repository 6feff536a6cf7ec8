"""allocation_failure: the named site fails so often with the engine's error, and no other does."""

import pytest
import torch

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Effect, Point
from chaos_mm.core.rng import Rng
from chaos_mm.faults.allocation_failure import allocation_failure
from tests.contract.engine_samples_embedding import OwnMemory

RNG = Rng.derive(3, "lease-1", "0", "allocation_failure")


def _fails(memory: OwnMemory, site: str) -> bool:
    try:
        return memory.allocate(site, 1000).numel() != 1000
    except torch.OutOfMemoryError:
        return True


@pytest.mark.parametrize("times", [1, 3])
def test_the_site_fails_so_often_and_then_allocates_again(times: int):
    memory = OwnMemory()
    hold = allocation_failure(memory, RNG, site="encoder", times=times)
    assert next(hold) == {"times": times}
    assert not _fails(memory, "attention")
    assert [_fails(memory, "encoder") for _ in range(times + 2)] == [True] * times + [False] * 2
    hold.close()
    assert memory.failed == times


def test_the_end_lets_through_what_has_not_failed_yet():
    memory = OwnMemory()
    hold = allocation_failure(memory, RNG, site="attention", times=1000)
    next(hold)
    assert _fails(memory, "attention")
    hold.close()
    assert not any(_fails(memory, "attention") for _ in range(5))


def test_a_site_that_the_engine_lacks_is_refused_by_name():
    memory = OwnMemory()
    with pytest.raises(InvalidParams, match="site='kv_growth'"):
        next(allocation_failure(memory, RNG, site="kv_growth"))
    assert not _fails(memory, "encoder")


def test_it_stands_at_the_agent_and_says_that_an_error_leaves():
    assert allocation_failure.points == (Point.AGENT,) and allocation_failure.effect is Effect.RAISES
    assert not allocation_failure.selectable
