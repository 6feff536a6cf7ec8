"""kv_cache_pressure against a real free list: how many are held, and that all come back."""

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
    assert pool.free == 40 - held and len(pool.held) == held
    assert figures == {"held_blocks": held, "free_blocks": 40 - held, "held_share": held / 64}
    with pytest.raises(StopIteration):
        next(holding)
    assert sorted(pool.list) == before and not pool.held


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


@pytest.mark.parametrize(
    ("total", "taken", "share", "floor"), [(0, 0, 1.0, 0), (8, 8, 1.0, 0), (64, 24, 0.01, 4), (64, 24, 1.0, 100)]
)
def test_a_pool_of_which_nothing_can_be_held_exercises_nothing(total: int, taken: int, share: float, floor: int):
    pool = SampleBlockPool(total=total, taken=taken)
    with pytest.raises(ChaosMMError, match=f"no block of the {total - taken} free ones"):
        next(_hold(pool, share=share, floor=floor))
    assert not pool.held and pool.free == total - taken
