"""What the control process refuses, and how it brings an undo to its end."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.agent.adapter import NotYet
from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import LEASES, Column, WorkerWord
from chaos_mm.agent.mirror import Mirror
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.errors import ChaosMMError, NotInjectable
from chaos_mm.core.fault import Fault, Point, Seam
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from tests.agent.conftest import TOKEN, House, body, canary, until
from tests.agent.declared import FAULTS
from tests.agent.miniature import Engine

pytestmark = pytest.mark.model


def test_a_seam_that_the_canary_never_passes_is_refused_with_the_reason(board: Board):
    runtime = Runtime(board, FAULTS, token=TOKEN)
    engine = Engine(runtime)
    engine.hooked = False  # as where a graph is replayed and no Python is called
    mirror = Mirror(engine, board)
    book = LeaseBook(FAULTS, point=Point.AGENT, limits=Limits(allow_live=True, max_rate=1), actuator=mirror)
    mirror.start()
    until(lambda: mirror.proofs.reason(Seam.KV) is not None)
    with pytest.raises(NotInjectable, match="kv would not take hold: the agent's own canary was answered without"):
        book.put("a", body("kv_add"))
    assert mirror.proofs.reason(Seam.ENGINE_MEMORY) == ""  # no request passes it: the adapter's word counts
    until(lambda: not board.armed())
    mirror.close()
    runtime.close()


def test_a_canary_that_fails_is_a_seam_that_is_not_proven(board: Board):
    class Broken(Engine):
        def prove(self, seam: Seam) -> str:
            raise ConnectionError("nobody answers")

    runtime = Runtime(board, FAULTS, token=TOKEN)
    mirror = Mirror(Broken(runtime), board)
    mirror.start()
    until(lambda: mirror.proofs.reason(Seam.KV) is not None)
    assert "its canary failed: ConnectionError: nobody answers" in mirror.refusal(FAULTS["kv_add"])
    mirror.close()
    runtime.close()


def test_before_anything_is_proven_a_lease_must_wait(board: Board):
    runtime = Runtime(board, FAULTS, token=TOKEN)

    class Slow(Engine):
        def prove(self, seam: Seam) -> str:
            time.sleep(0.3)
            return super().prove(seam)

    mirror = Mirror(Slow(runtime), board)
    assert "just being proven" in mirror.refusal(FAULTS["kv_add"])
    until(lambda: mirror.refusal(FAULTS["kv_add"]) == "")
    mirror.close()
    runtime.close()


def test_no_worker_no_seam_and_no_page_are_refused_by_name(house: House):
    fault = FAULTS["kv_add"]
    assert house.mirror.refusal(fault) == ""
    slot = house.board.workers()[0]
    seams = slot.get(WorkerWord.SEAMS)
    slot.set(WorkerWord.SEAMS, 0)
    assert house.mirror.refusal(fault) == "no living process of the engine has the seam kv; restart the engine"
    slot.set(WorkerWord.SEAMS, seams)
    start = slot.get(WorkerWord.START)
    slot.set(WorkerWord.START, start + 1)
    assert "no process of the engine has joined the board" in house.mirror.refusal(fault)
    slot.set(WorkerWord.START, start)
    house.engine.refusal = lambda fault: "not with a full CUDA graph"  # type: ignore[method-assign]
    assert house.mirror.refusal(fault) == "not with a full CUDA graph"
    del house.engine.refusal
    house.board.words[3] += 1
    assert "is gone or was replaced; restart the engine" in house.mirror.refusal(fault)
    house.board.words[3] -= 1
    assert house.mirror.refusal(fault) == ""
    house.board.path.rename(house.board.path.with_name("moved"))
    assert "is gone or was replaced; restart the engine" in house.mirror.refusal(fault)


def test_every_declared_fault_is_described(house: House):
    found = house.mirror.describe(FAULTS["attention_break"])
    assert found["engine"] == {"name": "miniature", "version": "1", "backend": "torch"}
    assert found["fatal"].startswith("restart needed") and found["batch_wide"]
    assert not house.mirror.selectable(FAULTS["attention_break"]) and house.mirror.selectable(FAULTS["kv_add"])
    assert house.mirror.describe(FAULTS["kv_add"])["fatal"] == ""


def struck(house: House) -> Lease:
    lease = house.put("kv_add", params={"amount": 1.0, "after": 1})
    house.engine.add(canary(1), 30)
    house.engine.step()
    house.engine.step()
    until(lambda: lease.applied == 1)
    house.release()
    return lease


def test_the_engines_own_undo_comes_last_and_again_until_it_can(house: House):
    calls: list[dict[str, float]] = []

    def after_release(lease: Lease) -> Mapping[str, float]:
        assert lease.undo is not None and lease.undo.pending
        calls.append(dict(lease.undo.figures))
        if len(calls) < 3:
            raise NotYet("the cache is in use")
        return {"evicted_blocks": 2}

    house.engine.after_release = after_release  # type: ignore[method-assign]
    evidence = house.undone(struck(house))
    assert len(calls) == 3
    assert evidence["undo"]["proven"] and evidence["undo"]["figures"]["evicted_blocks"] == 2


def test_a_flush_that_cannot_be_proven_is_said(house: House):
    def after_release(lease: Lease) -> Mapping[str, float]:
        raise ChaosMMError("the reset answered success: false")

    house.engine.after_release = after_release  # type: ignore[method-assign]
    undo = house.undone(struck(house))["undo"]
    assert not undo["proven"] and undo["reason"] == "the reset answered success: false"


def test_an_undo_that_failed_is_not_proven_even_when_its_reason_was_lost(house: House):
    lease = house.put("pool_stuck", blast_radius={"selector": "live"})
    until(lambda: lease.applied == 1)
    slot = house.board.workers()[0]
    with house.mirror._lock:  # nobody drains, and the ring is full
        while slot.push({"s": 0, "k": "nothing", "v": {}}):
            pass
        house.release()
        until(lambda: house.runtime._held == {})
    undo = house.undone(lease)["undo"]
    assert not undo["proven"] and undo["reason"].endswith("could not undo it; why was lost")
    assert lease.engine["lost_details"] > 0


def test_an_ended_lease_is_never_shown_clean_before_its_undo(house: House):
    lease = house.put("kv_add", ttl_seconds=0.6)
    seen = []
    while not lease.ended_by:  # nobody calls the book: it ends by itself, and the board is not told
        time.sleep(0.005)
        shown = lease.to_json(house.book.clock())
        seen.append((shown["state"], shown["undo"] is None))
    assert ("live", True) in seen and seen[-1] == ("undoing", False)
    house.book.expire()
    assert house.undone(lease)["state"] == "ended"


def test_what_was_never_struck_needs_no_flush(house: House):
    house.engine.after_release = lambda lease: pytest.fail("called")  # type: ignore[method-assign]
    lease = house.put("kv_add")
    house.release()
    assert house.undone(lease)["undo"] == {"pending": False, "proven": True, "reason": "", "figures": {}}


def test_an_undo_is_pending_until_the_process_says_it_is_done(house: House):
    lease = house.put("kv_add", params={"amount": 1.0, "after": 1})
    house.engine.add(canary(1), 30)
    house.engine.step()
    house.engine.step()
    with house.engine.guard:  # a step that hangs: bytes cannot be put back under it
        house.release()
        time.sleep(0.3)
        shown = lease.to_json(house.book.clock())
        assert shown["state"] == "undoing" and "has not undone it yet" in shown["undo"]["reason"]
    assert house.undone(lease)["undo"]["proven"]


def test_a_second_lease_over_the_first_and_both_come_back(house: House):
    request = house.engine.add(canary(1), 30)
    house.engine.step()
    before = house.engine.cache[request.blocks[0], :, 0].clone()
    first = house.put("kv_add", "a", params={"amount": 1.0})
    house.engine.step()
    second = house.put("kv_add", "b", params={"amount": 2.0})
    house.engine.step()
    house.release("a")
    time.sleep(0.3)
    house.engine.step()
    assert first.to_json(house.book.clock())["state"] == "undoing"  # the second lies over it
    house.release("b")
    assert house.undone(second)["undo"]["proven"] and house.undone(first)["undo"]["proven"]
    assert house.engine.cache[request.blocks[0], :, 0].equal(before)


def test_more_leases_than_slots_are_refused(house: House):
    for n in range(LEASES):
        house.put("kv_add", f"lease{n}")
    with pytest.raises(ChaosMMError, match="16 leases live or are not yet undone"):
        house.put("kv_add", "one-more")
    house.book.stop()
    house.book.clear_stop()
    until(lambda: not house.mirror._shadows)
    house.put("kv_add", "again")


def test_two_hundred_leases_leave_the_page_as_it_was(house: House):
    for n in range(200):
        lease = house.put("kv_add", f"n{n}", params={"amount": 1.0, "after": 1})
        house.engine.run(canary(n), 3)
        house.release(f"n{n}")
        house.undone(lease)
        assert lease.matched == 1 and lease.undo is not None and lease.undo.proven
    assert not house.board.armed() and house.runtime._held == {} and house.runtime.undo.held_bytes == 0
    assert house.board.workers()[0].get(WorkerWord.PENDING_UNDO) == 0


def test_a_new_control_process_disarms_what_the_dead_one_left(tmp_path: Path):
    board = Board.create(tmp_path / "b", new_nonce())
    runtime = Runtime(board, FAULTS, token=TOKEN)
    engine = Engine(runtime)
    runtime.watch(engine.guard)
    spec = {"name": "old", "fault": "kv_add", "params": {"amount": 1.0, "after": 0}, "seed": 0, "mode": "inject"}
    radius = {"rate": 1.0, "selector": "canary", "limit": 0}
    board.publish(3, 9, {**spec, "owner": "r0", "radius": radius}, time.monotonic_ns() + 60 * 10**9)
    until(lambda: runtime.column(3).serial == 9)
    mirror = Mirror(engine, board)
    mirror.start()
    until(lambda: runtime.column(3).state == Column.UNTOUCHED)
    book = LeaseBook(FAULTS, point=Point.AGENT, actuator=mirror)
    until(lambda: mirror.refusal(FAULTS["kv_add"]) == "")
    lease = book.put("new", body("kv_add"))
    assert {board.serial(slot) for slot in range(LEASES)} >= {10}
    engine.run(canary(1), 3)
    until(lambda: lease.matched == 1)
    mirror.close()
    runtime.close()
    board.close()


def test_evidence_is_strict_json_whatever_the_fault_says(house: House):
    lease = struck(house)
    text = json.dumps(house.undone(lease), allow_nan=False)
    assert "NaN" not in text and TOKEN not in text
    figures: dict[str, Any] = json.loads(text)["achieved"]
    assert figures["added"] == {"count": 1, "mean": 1.0, "min": 1.0, "max": 1.0}


def test_users_are_not_named_in_evidence(house: House):
    lease = house.put("kv_add", blast_radius={"selector": "live"})
    house.engine.run("chatcmpl-alice-7-00000000", 3)
    until(lambda: bool(lease.engine.get("requests")))
    assert "alice" not in json.dumps(lease.to_json(house.book.clock()))
    assert next(iter(lease.engine["requests"])).startswith("hash:")


def test_every_fault_of_these_tests_has_a_seam():
    assert all(isinstance(made, Fault) and made.seam for made in FAULTS.values())


def test_what_was_proven_of_one_model_is_proven_anew_of_the_next(house: House):
    engine, proofs = house.engine, house.mirror.proofs
    engine.hooked = False  # the next model is compiled, and its seams are passed by nobody
    assert proofs.reason(Seam.KV) == ""
    engine.loads += 1
    assert proofs.reason(Seam.KV) is None and "just being proven" in house.mirror.refusal(FAULTS["kv_add"])
    until(lambda: proofs.reason(Seam.KV) is not None)
    with pytest.raises(NotInjectable, match="would not take hold"):
        house.put("kv_add")
