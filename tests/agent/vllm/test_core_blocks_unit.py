"""Key-value blocks held by the engine core on a stand-in of vLLM's pool: how a ramp goes on, and that it ends."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import Column
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process
from chaos_mm.agent.vllm.block_pool import HeldBlocks
from chaos_mm.agent.vllm.core import CoreAgent
from chaos_mm.faults import catalogue
from tests.agent.vllm.test_core_unit import engine

BLOCKS = 41  # one of them is the null block


class Pool:
    """What ``HeldBlocks`` uses of vLLM's BlockPool, with its errors."""

    num_gpu_blocks = BLOCKS
    hash_block_size = 16

    def __init__(self) -> None:
        self.list = list(range(1, BLOCKS))

    def get_num_free_blocks(self) -> int:
        return len(self.list)

    def get_new_blocks(self, count: int) -> list[int]:
        if count > len(self.list):
            raise ValueError(f"Cannot get {count} free blocks from the pool")
        return [self.list.pop() for _ in range(count)]

    def free_blocks(self, blocks: list[int]) -> None:
        self.list += blocks


class Lease:
    """Stands for ``Armed``."""

    seam = "block_pool"

    def __init__(self) -> None:
        self.live, self.hits, self.reasons = True, list[dict[str, float]](), list[str]()

    def hit(self, site: str, figures: dict[str, float]) -> None:
        assert site == self.seam
        self.hits.append(figures)

    def refused(self, reason: str) -> None:
        self.reasons.append(reason)


class Clock:
    """Seconds, set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def ramp(floor: int = 0) -> tuple[HeldBlocks, Pool, Lease, Clock]:
    pool, lease, clock = Pool(), Lease(), Clock()
    held = HeldBlocks(pool, lease, clock)  # type: ignore[arg-type]
    assert held.hold(40, floor=floor, over_seconds=10.0) == 1
    return held, pool, lease, clock


def test_without_a_ramp_all_are_taken_at_once_and_nothing_is_left_to_do():
    pool, lease = Pool(), Lease()
    held = HeldBlocks(pool, lease)  # type: ignore[arg-type]
    assert held.hold(50) == 40 and not held.advance()
    assert (held.held, held.free, held.peak, lease.hits) == (40, 0, 40, [])
    assert held.release() == 40 and len(pool.list) == 40


def test_a_ramp_takes_what_is_due_and_tells_each_time():
    held, _, lease, clock = ramp()
    for seconds, due in ((0.0, 1), (0.3, 1), (2.5, 10), (2.6, 10), (9.9, 39)):
        clock.now = 100.0 + seconds
        assert held.advance() and held.held == due
    clock.now = 110.0
    assert not held.advance(), "it is at its end"
    assert [figures["held_blocks"] for figures in lease.hits] == [10, 39, 40]
    assert lease.hits[-1] == {"held_blocks": 40, "free_blocks": 0, "held_share": 1.0}


def test_a_ramp_waits_for_blocks_and_leaves_the_floor():
    held, pool, _, clock = ramp(floor=4)
    requests, pool.list = pool.list[:30], pool.list[30:]
    clock.now = 105.0
    assert held.advance() and (held.held, held.free) == (6, 4)
    pool.list += requests
    clock.now = 200.0
    assert held.advance() and (held.held, held.free) == (36, 4)


@pytest.mark.parametrize("ended", ["released", "expired"])
def test_an_ended_ramp_takes_nothing_more(ended: str):
    held, pool, lease, clock = ramp()
    clock.now = 105.0
    held.advance()
    if ended == "released":
        assert held.release() == 20
    else:
        lease.live = False
    clock.now = 109.0
    assert not held.advance() and held.held == (0 if ended == "released" else 20)
    held.release()
    assert sorted(pool.list) == list(range(1, BLOCKS)) and held.peak == 20


def test_a_pool_that_fails_ends_the_ramp_and_not_the_engine():
    held, pool, lease, clock = ramp()

    def broken(count: int) -> list[int]:
        raise RuntimeError("the free list is torn")

    pool.get_new_blocks = broken  # type: ignore[method-assign]
    clock.now = 105.0
    assert not held.advance() and not held.advance()
    assert lease.reasons == ["RuntimeError: the free list is torn"]
    assert held.release() == 1


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CoreAgent, Pool]]:
    """The agent of an engine core whose scheduler has this pool."""
    board = Board.create(tmp_path / "board", new_nonce())
    runtime = Runtime(board, token="t" * 43, process="engine_core")
    monkeypatch.setattr(process, "runtime", lambda name: runtime)
    pool = Pool()
    yield CoreAgent(engine(scheduler__kv_cache_manager=SimpleNamespace(block_pool=pool))), pool
    runtime.close()
    board.close()


def arm(agent: CoreAgent, **params: Any) -> None:
    spec = {
        "name": "lease",
        "fault": "kv_cache_pressure",
        "params": catalogue()["kv_cache_pressure"].bind(params),
        "seed": 1,
        "mode": "inject",
        "owner": "r1",
        "radius": {"rate": 1.0, "selector": "live", "limit": 0},
    }
    agent.runtime.page.publish(0, 1, spec, time.monotonic_ns() + 60 * 10**9)


def ticked(agent: CoreAgent, holds: Callable[[], bool]) -> None:
    """Turn the engine core's loop until something holds."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        agent.tick()
        time.sleep(0.005)


def test_the_loop_advances_a_ramp_and_a_release_in_its_middle_gives_all_back(core: tuple[CoreAgent, Pool]):
    agent, pool = core
    arm(agent, share=1.0, floor=0, ramp_seconds=0.8)
    agent.tick()
    assert len(pool.list) == 39, "one at once"
    ticked(agent, lambda: len(pool.list) <= 30)
    held = BLOCKS - 1 - len(pool.list)
    assert held < 40, "in the middle of it"
    agent.runtime.page.withdraw(0)
    ticked(agent, lambda: agent.runtime.column(0).state == Column.CLEAN)
    for _ in range(5):
        agent.tick()
    assert sorted(pool.list) == list(range(1, BLOCKS)) and not agent._ramps
    (slot,) = agent.runtime.page.workers()
    records = list(slot.pull())
    figures = [record["v"]["held_blocks"] for record in records if record["k"] == "figures"]
    assert max(high for _, _, _, high in figures) == held and min(low for _, _, low, _ in figures) == 1
    assert [r["v"]["held_blocks"] for r in records if r["k"] == "undone" and r["v"]] == [held]
    column = agent.runtime.column(0)
    assert (column.get(Column.MATCHED), column.get(Column.APPLIED), column.get(Column.ERRORED)) == (1, 1, 0)
