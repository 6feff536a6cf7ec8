"""kv_cache_pressure against a real free list: how many are held when, and that all come back."""

from collections.abc import Callable

import pytest

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_pressure import kv_cache_pressure
from tests.contract.engine_samples import SampleBlockPool


def _hold(pool: SampleBlockPool, **params: float):
    return kv_cache_pressure(pool, Rng.derive(3, "", "0", "kv_cache_pressure"), **params)


@pytest.mark.parametrize(("share", "floor", "held"), [(0.5, 0, 20), (0.9, 4, 36), (1.0, 0, 40), (1.0, 4, 36)])
def test_a_share_of_the_free_blocks_is_held_down_to_the_floor_and_all_come_back(share: float, floor: int, held: int):
    pool = SampleBlockPool(total=64, taken=24)
    before = sorted(pool.list)
    holding = _hold(pool, share=share, floor=floor)
    figures = next(holding)
    assert pool.free == 40 - held and pool.held == held
    assert figures == {"held_blocks": held, "free_blocks": 40 - held, "held_share": held / 64}
    with pytest.raises(StopIteration) as ended:
        next(holding)
    assert ended.value.value == {"held_blocks": held, "held_share": held / 64}
    assert sorted(pool.list) == before and not pool.held


def test_a_ramp_begins_with_one_block_and_goes_on_evenly_between_steps():
    pool = SampleBlockPool(total=64, taken=24)
    holding = _hold(pool, share=1.0, floor=0, ramp_seconds=10.0)
    assert next(holding)["held_blocks"] == 1
    held = []
    for second in range(1, 12):
        pool.step(float(second))
        held.append(pool.held)
    assert held == [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 40]


@pytest.mark.parametrize("end", [lambda holding: next(holding, None), lambda holding: holding.close()])
def test_a_release_in_the_middle_of_a_ramp_gives_all_back_and_nothing_is_taken_afterwards(end: Callable):
    pool = SampleBlockPool(total=64, taken=24)
    holding = _hold(pool, share=1.0, floor=0, ramp_seconds=10.0)
    next(holding)
    pool.step(5.0)
    assert pool.held == 20
    end(holding)
    pool.step(9.0)
    assert (pool.held, pool.free) == (0, 40)


def test_the_end_tells_the_most_that_were_held_at_once():
    pool = SampleBlockPool(total=64, taken=24)
    holding = _hold(pool, share=1.0, floor=0, ramp_seconds=10.0)
    next(holding)
    pool.step(7.5)
    with pytest.raises(StopIteration) as ended:
        next(holding)
    assert ended.value.value == {"held_blocks": 30, "held_share": 30 / 64}


def test_a_ramp_leaves_the_floor_to_what_the_engine_has_taken_meanwhile():
    pool = SampleBlockPool(total=64, taken=24)
    holding = _hold(pool, share=1.0, floor=8, ramp_seconds=10.0)
    next(holding)
    requests = [pool.list.pop() for _ in range(25)]
    pool.step(10.0)
    assert (pool.held, pool.free) == (7, 8)
    pool.list += requests
    pool.step(11.0)
    assert (pool.held, pool.free) == (32, 8), "what was wanted at the start, and no more"


def test_blocks_come_back_when_it_is_closed_instead():
    pool = SampleBlockPool()
    holding = _hold(pool, share=1.0)
    next(holding)
    pool.list.append(7)  # a request ended meanwhile
    holding.close()
    assert not pool.held and pool.free == 41


def test_an_error_in_between_gives_every_block_back():
    pool = SampleBlockPool()
    holding = _hold(pool, share=1.0)
    next(holding)
    with pytest.raises(RuntimeError, match="the engine is going down"):
        holding.throw(RuntimeError("the engine is going down"))
    assert not pool.held


def test_a_block_that_does_not_come_back_is_said():
    pool = SampleBlockPool()
    holding = _hold(pool, share=0.5)
    next(holding)
    pool.release = lambda: len(pool.blocks)  # type: ignore[method-assign]  # as an engine that keeps them
    with pytest.raises(ChaosMMError, match="20 blocks were held; 0 more are free again"):
        next(holding)


@pytest.mark.parametrize("ramp_seconds", [0.0, 5.0])
@pytest.mark.parametrize(
    ("total", "taken", "share", "floor"), [(0, 0, 1.0, 0), (8, 8, 1.0, 0), (64, 24, 0.01, 4), (64, 24, 1.0, 100)]
)
def test_a_pool_of_which_nothing_can_be_held_exercises_nothing(
    total: int, taken: int, share: float, floor: int, ramp_seconds: float
):
    pool = SampleBlockPool(total=total, taken=taken)
    with pytest.raises(ChaosMMError, match=f"no block of the {total - taken} free ones"):
        next(_hold(pool, share=share, floor=floor, ramp_seconds=ramp_seconds))
    assert not pool.held and pool.free == total - taken
