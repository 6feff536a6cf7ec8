"""A process's view: who a request is, what a strike draws, and that counters hold under threads and full rings."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import Column, WorkerWord
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.who import OWN_PREFIX
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.fault import Fault, Outcome, Point, Seam, Target, fault
from chaos_mm.core.rng import Rng
from tests.agent.conftest import TOKEN, canary, until

SECOND = 10**9


@fault(Target.ATTENTION)
def attention_draw(value: Any, rng: Rng) -> Any:
    """Answer with a draw."""
    return NOT_NOW if value is None else Outcome(rng.random(), {"value": value})


@fault(Target.KV_CACHE)
def kv_draw(value: Any, rng: Rng) -> Any:
    """Answer with a draw."""
    return Outcome(rng.random())


@fault(Target.ATTENTION)
def attention_block(value: Any, rng: Rng) -> Any:
    """Stay until the test lets go."""
    value["inside"].set()
    value["go"].wait(20)
    return Outcome(value)


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY)
def memory_ramp(value: Any, rng: Rng) -> Iterator[Mapping[str, float]]:
    """Take a while to begin and to end, and say what was undone."""
    value["armed"].wait(0.2)
    value["held"] = threading.current_thread().name
    yield {"held": 1.0}
    value["held"] = ""
    return {"let_go": 2.0}


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY)
def memory_twice(value: Any, rng: Rng) -> Iterator[Mapping[str, float]]:
    """Break the rule of one yield."""
    yield {}
    yield {}


@fault(Target.MEMORY, points=(Point.AGENT,), seam=Seam.ENGINE_MEMORY)
def memory_stuck(value: Any, rng: Rng) -> Iterator[Mapping[str, float]]:
    """Fail on the way up, and then to undo what had been done by then."""
    try:
        raise RuntimeError("no more")
        yield {}
    finally:
        raise RuntimeError("stuck")


FAULTS: dict[str, Fault] = {
    made.name: made for made in (attention_block, attention_draw, kv_draw, memory_ramp, memory_stuck, memory_twice)
}


def spec(fault_name: str, **more: Any) -> dict[str, Any]:
    radius = {"rate": 1.0, "selector": "canary", "limit": 0, **more.pop("radius", {})}
    return {"name": "a", "fault": fault_name, "params": {}, "seed": 7, "radius": radius, "mode": "inject"} | {
        "owner": "r1",
        **more,
    }


@pytest.fixture
def runtime(board: Board):
    made = Runtime(board, FAULTS, token=TOKEN, process="engine")
    yield made
    made.close()


def arm(board: Board, fault_name: str, slot: int = 0, serial: int = 1, **more: Any) -> None:
    board.publish(slot, serial, spec(fault_name, **more), time.monotonic_ns() + 60 * SECOND)


def info(request_id: str, *modalities: str) -> RequestInfo:
    return RequestInfo(request_id, "", modalities=frozenset(modalities))


def test_a_canary_is_known_wherever_the_engine_wraps_its_id(runtime: Runtime):
    mine = canary(5)
    for text in (mine, f"chatcmpl-{mine}-0a1b2c3d", f"cmpl-{mine}-0-0a1b2c3d"):
        who = runtime.identify(text)
        assert (who.id, who.canary, who.shown) == (mine, True, mine)


def test_a_user_is_no_canary_and_is_never_named(runtime: Runtime):
    forged = canary(5)[:-1] + ("0" if canary(5)[-1] != "0" else "1")
    for text in ("secret-user-7", forged):
        who = runtime.identify(f"chatcmpl-{text}-0a1b2c3d")
        assert who.id == text and not who.canary
        assert who.shown.startswith("hash:") and text not in who.shown


def test_the_flag_of_an_adapter_is_not_believed(runtime: Runtime, board: Board):
    arm(board, "kv_draw")
    (armed,) = runtime.leases(Seam.KV)
    assert not armed.matches(RequestInfo("somebody", "", canary=True))


def test_modality_is_the_one_term_an_engine_sees(runtime: Runtime, board: Board):
    arm(board, "kv_draw", radius={"selector": "canary,modality:image"})
    (armed,) = runtime.leases(Seam.KV)
    assert not armed.matches(info(canary(1), "text")) and armed.matches(info(canary(1), "text", "image"))


def test_the_rate_is_that_of_the_blast_radius_for_plain_ids(runtime: Runtime, board: Board):
    arm(board, "kv_draw", radius={"rate": 0.5})
    (armed,) = runtime.leases(Seam.KV)
    ids = [canary(n) for n in range(300)]
    chosen = [n for n in ids if armed.chosen(info(f"chatcmpl-{n}-00000000"))]
    assert chosen == [n for n in ids if armed.radius.hits(7, "a", n)]
    assert 110 < len(chosen) < 190  # 5 standard deviations about 150 are 43


def test_a_draw_depends_on_the_request_and_the_part_alone(runtime: Runtime, board: Board):
    """Whatever the order and the thread, each answer is the stream that the vocabulary derives."""
    arm(board, "attention_draw")
    (armed,) = runtime.leases(Seam.ATTENTION)
    got: dict[tuple[int, str], float] = {}

    def work(numbers: list[int]) -> None:
        for n in numbers:
            for part in ("layer1", "layer0"):
                got[n, part] = armed.strike(1.0, f"chatcmpl-{canary(n)}-0a1b2c3d", part, part)

    threads = [threading.Thread(target=work, args=([n for n in range(60) if n % 4 == k][::-1],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {
        (n, part): Rng.derive(7, canary(n), part, "attention_draw a").random()
        for n in range(60)
        for part in ("layer0", "layer1")
    }
    column = runtime.column(0)
    assert (column.get(Column.MATCHED), column.get(Column.APPLIED)) == (60, 60)


def test_an_occasion_that_passes_counts_nothing(runtime: Runtime, board: Board):
    arm(board, "attention_draw", radius={"limit": 1})
    (armed,) = runtime.leases(Seam.ATTENTION)
    assert armed.strike(None, canary(1), "p", "s") is None
    column = runtime.column(0)
    assert [column.get(word) for word in (Column.APPLIED, Column.ERRORED, Column.CLAIMED)] == [0, 0, 0]
    assert armed.strike(2.0, canary(2), "p", "s") != 2.0  # the limit was given back
    assert armed.strike(2.0, canary(3), "p", "s") == 2.0


def test_attention_repeats_and_a_cache_is_struck_once(runtime: Runtime, board: Board):
    arm(board, "attention_draw")
    arm(board, "kv_draw", slot=1, serial=2)
    (attention,), (kv,) = runtime.leases(Seam.ATTENTION), runtime.leases(Seam.KV)
    for armed, again in ((attention, True), (kv, False)):
        assert armed.chosen(info(canary(1)))
        armed.strike(1.0, canary(1), "p", "s")
        assert armed.chosen(info(canary(1))) is again


def test_an_ended_lease_never_strikes_whoever_holds_it(runtime: Runtime, board: Board):
    arm(board, "attention_draw")
    (armed,) = runtime.leases(Seam.ATTENTION)
    board.withdraw(0)
    assert not armed.live and armed.strike(2.0, canary(1), "p", "s") == 2.0
    arm(board, "attention_draw", serial=2)  # the same slot, another lease
    assert not armed.live and armed.strike(2.0, canary(1), "p", "s") == 2.0


def test_waiting_ends_with_the_lease(runtime: Runtime, board: Board):
    arm(board, "attention_draw")
    (armed,) = runtime.leases(Seam.ATTENTION)
    threading.Timer(0.1, board.withdraw, (0,)).start()
    assert 0.05 < armed.wait(30.0) < 5.0


def test_a_full_ring_loses_details_and_counts_them_and_no_counter(runtime: Runtime, board: Board):
    """Nobody drains: 20 000 strikes of 10 000 requests at 3 000 sites."""
    arm(board, "attention_draw")
    (armed,) = runtime.leases(Seam.ATTENTION)
    for n in range(10_000):
        for turn in range(2):
            armed.strike(1.0, canary(n), f"{turn}", f"layer{(2 * n + turn) % 3000}")
        if n % 20 == 0:
            runtime.flush(armed)
    runtime.flush(armed)
    column, slot = runtime.column(0), board.workers()[0]
    assert (column.get(Column.MATCHED), column.get(Column.APPLIED)) == (10_000, 10_000)
    assert slot.get(WorkerWord.LOST) > 0
    seen: dict[str, int] = {}
    for _ in range(400):
        for record in slot.pull():
            if record["k"] == "sites":
                for name, count in record["v"].items():
                    seen[name] = seen.get(name, 0) + count
        runtime.flush(armed)
    shown = sum(seen.values())
    requests = 20_000 - shown  # each strike counts one site; those without room were counted as lost
    assert 0 < shown < 20_000 and slot.get(WorkerWord.LOST) >= requests


def test_memory_is_bounded_whatever_passes(runtime: Runtime, board: Board):
    arm(board, "kv_draw")
    (armed,) = runtime.leases(Seam.KV)
    for n in range(6000):
        armed.matches(info(canary(n)))
    assert len(armed._known) <= 4096
    runtime.forget(canary(5999))
    assert canary(5999) not in armed._known


def strike_many(path: Path, nonce: str, first: int) -> None:
    runtime = Runtime(Board.open(path, nonce), FAULTS, token=TOKEN, process=f"w{first}")
    (armed,) = runtime.leases(Seam.KV)
    for n in range(first, first + 200):
        armed.strike(1.0, canary(n), "p", "s")
    runtime.flush(armed)


def test_a_limit_holds_over_processes_that_race(tmp_path: Path):
    nonce = new_nonce()
    board = Board.create(tmp_path / "b", nonce)
    arm(board, "kv_draw", radius={"limit": 50})
    fork = multiprocessing.get_context("fork")
    racers = [fork.Process(target=strike_many, args=(tmp_path / "b", nonce, n * 1000)) for n in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    applied = [worker.column(0).get(Column.APPLIED) for worker in board.workers()]
    assert len(applied) == 3 and sum(applied) == 50
    board.close()


def test_a_forked_child_writes_nothing(runtime: Runtime, board: Board):
    arm(board, "kv_draw")
    assert runtime.armed()
    child = os.fork()
    if child == 0:
        runtime.tick()
        quiet = not runtime.armed() and runtime.leases(Seam.KV) == () and "forked" in runtime.inert
        os._exit(0 if quiet else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert board.workers()[0].get(WorkerWord.STEPS) == 0 and runtime.armed()


def test_a_lease_of_a_fault_that_is_not_known_here_does_no_harm(runtime: Runtime, board: Board):
    arm(board, "moon_shine")
    runtime.tick()
    assert runtime.leases(Seam.KV) == () and board.workers()[0].get(WorkerWord.ACK) == board.generation


def test_an_error_of_the_agents_does_not_reach_the_engine(runtime: Runtime, board: Board, caplog: Any):
    arm(board, "kv_draw", params={"no": "such"}, radius={"selector": "nonsense"})
    runtime.tick()
    assert runtime.leases(Seam.KV) == () and "cannot be run" in caplog.text


def test_a_watcher_acknowledges_for_an_idle_engine(runtime: Runtime, board: Board):
    runtime.watch()
    arm(board, "kv_draw")
    until(lambda: board.workers()[0].get(WorkerWord.ACK) == board.generation)
    board.withdraw(0)
    until(lambda: runtime.column(0).state == Column.UNTOUCHED)


def test_an_undo_waits_for_a_strike_that_is_still_at_work(runtime: Runtime, board: Board):
    runtime.watch()
    arm(board, "attention_block")
    (armed,) = runtime.leases(Seam.ATTENTION)
    value = {"inside": threading.Event(), "go": threading.Event()}
    thread = threading.Thread(target=armed.strike, args=(value, canary(1), "p", "s"))
    thread.start()
    assert value["inside"].wait(10)
    board.withdraw(0)
    time.sleep(0.2)
    assert runtime.column(0).state == Column.STRUCK  # a second thread has looked four times
    value["go"].set()
    thread.join()
    until(lambda: runtime.column(0).state == Column.CLEAN)
    assert runtime.column(0).get(Column.APPLIED) == 1


def test_a_hold_of_its_own_thread_holds_nobody_up(runtime: Runtime, board: Board):
    value: dict[str, Any] = {"held": ""}
    runtime.declare(Seam.ENGINE_MEMORY, lambda armed: _with(value, armed), "own")
    runtime.watch()
    arm(board, "memory_ramp", radius={"selector": "live"})
    until(lambda: value["held"] == "chaos-mm-hold")
    until(lambda: runtime.column(0).get(Column.APPLIED) == 1)
    board.withdraw(0)
    until(lambda: runtime.column(0).state == Column.CLEAN)
    assert value["held"] == ""
    records = list(board.workers()[0].pull())
    assert {"s": 1, "k": "undone", "v": {"let_go": 2.0}} in records


def test_a_hold_that_yields_twice_is_not_proven(runtime: Runtime, board: Board):
    runtime.declare(Seam.ENGINE_MEMORY, lambda armed: {}, "watcher")
    arm(board, "memory_twice", radius={"selector": "live"})
    runtime.tick()
    board.withdraw(0)
    runtime.tick()
    assert runtime.column(0).state == Column.FAILED


def test_a_hold_that_fails_and_cannot_undo_what_it_began_is_not_proven(runtime: Runtime, board: Board):
    runtime.declare(Seam.ENGINE_MEMORY, lambda armed: {}, "watcher")
    arm(board, "memory_stuck", radius={"selector": "live"})
    runtime.tick()
    board.withdraw(0)
    runtime.tick()
    column = runtime.column(0)
    assert (column.state, column.get(Column.ERRORED), column.get(Column.APPLIED)) == (Column.FAILED, 1, 0)
    assert {"s": 1, "k": "unproven", "v": "RuntimeError: stuck"} in list(board.workers()[0].pull())


def test_an_adapters_own_canary_is_never_matched(runtime: Runtime, board: Board):
    arm(board, "kv_draw", radius={"selector": "live"})
    (armed,) = runtime.leases(Seam.KV)
    assert not armed.matches(info(f"{OWN_PREFIX}17")) and armed.matches(info("somebody"))


def test_a_seam_that_cannot_give_its_value_counts_once(runtime: Runtime, board: Board):
    calls = []

    def broken(armed: Any) -> Any:
        calls.append(armed)
        raise RuntimeError("the engine has no such pool")

    runtime.declare(Seam.ENGINE_MEMORY, broken)
    arm(board, "memory_ramp", radius={"selector": "live"})
    for _ in range(5):
        runtime.tick()
    assert len(calls) == 1 and runtime.column(0).get(Column.ERRORED) == 1
    board.withdraw(0)
    runtime.tick()
    assert runtime.column(0).state == Column.UNTOUCHED


def _with(value: dict[str, Any], armed: Any) -> dict[str, Any]:
    value["armed"] = armed
    return value


def test_only_the_process_that_has_the_seam_counts_who_is_in_flight(runtime: Runtime, board: Board):
    other = Runtime(board, FAULTS, token=TOKEN, process="other")
    runtime.declare(Seam.KV)
    arm(board, "kv_draw")
    for process in (runtime, other):
        process.tick()
        process.observe([info(canary(1))])
    assert [worker.column(0).get(Column.MATCHED) for worker in board.workers()] == [1, 0]
    other.close()


def test_a_lease_that_is_newer_than_what_a_step_was_made_with_meets_nobody_in_it(runtime: Runtime, board: Board):
    runtime.declare(Seam.ATTENTION)
    arm(board, "attention_draw")
    seen = board.generation
    arm(board, "attention_draw", slot=1, serial=2)
    runtime.leases(Seam.ATTENTION)
    runtime.observe([info(canary(1))], seen)
    assert [runtime.column(slot).get(Column.MATCHED) for slot in (0, 1)] == [1, 0]
    runtime.observe([info(canary(1))])
    assert [runtime.column(slot).get(Column.MATCHED) for slot in (0, 1)] == [1, 1]
