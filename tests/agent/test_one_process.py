"""From lease to strike to undo, with the engine, the book and the board in one process."""

import json
import math

import pytest

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.errors import Forbidden, InvalidParams, NotInjectable
from chaos_mm.core.fault import Seam
from tests.agent.conftest import House, canary, until

pytestmark = pytest.mark.model


def answers(rows: int) -> list[float]:
    """What the miniature engine answers when nobody harms it, by its definition."""
    each = [sum(0.01 * i + row for i in range(16)) for row in range(rows)]
    return [math.fsum(each[: n + 1]) for n in range(rows)]


def test_a_canary_is_struck_once_and_nobody_else(house: House):
    lease = house.put("kv_add", params={"amount": 5.0, "after": 3})
    hurt, spared = house.engine.add(canary(1), 8), house.engine.add("somebody", 8)
    while not (hurt.finished and spared.finished):
        house.engine.step()
    assert spared.answers == pytest.approx(answers(8))
    clean = answers(8)
    assert hurt.answers[:3] == pytest.approx(clean[:3])
    assert hurt.answers[3] == pytest.approx(clean[3] + 5.0 * 16 * 3)  # three rows stood there
    until(lambda: lease.applied == 1)
    assert (lease.matched, lease.applied, lease.errored) == (1, 1, 0)
    until(lambda: lease.sites == {"layer0": 1} and lease.engine["requests"] == {canary(1): 1})


def test_the_end_puts_back_what_is_still_the_faults(house: House):
    request = house.engine.add(canary(1), 9)
    house.engine.step()
    house.engine.step()
    before = house.engine.cache.clone()
    lease = house.put("kv_add", params={"amount": 5.0})
    house.engine.step()
    assert not house.engine.cache.equal(before)
    house.release()
    house.engine.step()
    evidence = house.undone(lease)
    assert evidence["undo"] == {
        "pending": False,
        "proven": True,
        "reason": "",
        # a block of 4 slots was written; the third was then filled by the engine itself
        "figures": {"restored_elements": 48.0, "skipped_elements": 16.0, "saved_bytes": 512.0},
    }
    assert request.answers[-1] == pytest.approx(answers(4)[-1])
    assert evidence["state"] == "ended" and evidence["ended_by"] == "release"
    json.dumps(evidence, allow_nan=False)
    assert evidence["achieved"]["nonfinite_undefined"]["count"] == 1 and "undefined" not in evidence["achieved"]


def test_an_idle_engine_is_undone_by_the_watcher(house: House):
    request = house.engine.add(canary(1), 9)
    house.engine.step()
    lease = house.put("kv_add")
    house.engine.step()
    house.release()
    assert house.undone(lease)["undo"]["proven"]
    assert request.answers[0] == pytest.approx(answers(1)[0])


def test_a_fault_that_fails_half_way_leaves_nothing(house: House):
    request = house.engine.add(canary(1), 6)
    house.engine.step()
    before = house.engine.cache.clone()
    lease = house.put("kv_half")
    house.engine.step()
    assert house.engine.cache[request.blocks[0], :, 0].equal(before[request.blocks[0], :, 0])
    until(lambda: lease.errored == 1)
    until(lambda: lease.engine.get("last_error") == "RuntimeError: half way")
    assert lease.applied == 0
    while not request.finished:
        house.engine.step()
    assert request.answers == pytest.approx(answers(6)) and lease.errored == 1


def test_an_error_that_shall_leave_the_seam_does_and_is_counted(house: House):
    lease = house.put("attention_break")
    request = house.engine.add(canary(1), 4)
    house.engine.step()
    assert request.error == "broken"
    until(lambda: lease.applied == 1)
    assert lease.engine["fatal"].startswith("restart needed") and lease.engine["batch_wide"]


@pytest.mark.parametrize("more", [{"mode": "observe"}, {"params": {"amount": 0.0}}])
def test_observing_and_a_dose_of_zero_change_nothing(house: House, more: dict[str, object]):
    lease = house.put("kv_add", **more)
    assert house.engine.run(canary(1), 6) == pytest.approx(answers(6))
    until(lambda: lease.matched == 1)
    assert lease.applied == 0
    house.release()
    assert house.undone(lease)["undo"]["figures"] == {}


def test_a_hold_begins_by_itself_and_ends_with_the_lease(house: House):
    lease = house.put("memory_mark", params={"bytes_left": 77}, blast_radius={"selector": "live"})
    until(lambda: house.engine.ceiling == 77 and lease.applied == 1)
    assert lease.achieved["ceiling_bytes"].total == 77
    house.release()
    assert house.undone(lease)["undo"]["proven"] and house.engine.ceiling is None


def test_an_undo_that_fails_is_not_proven(house: House):
    lease = house.put("pool_stuck", blast_radius={"selector": "live"})
    until(lambda: lease.applied == 1)
    house.release()
    undo = house.undone(lease)["undo"]
    assert not undo["proven"] and "stuck" in undo["reason"]


@pytest.mark.parametrize("term", ["header:x-tenant=a", "path:/v1/chat/completions", "model:tiny"])
def test_what_an_engine_cannot_see_is_refused_by_name(house: House, term: str):
    with pytest.raises(InvalidParams, match=f"selector {term.partition(':')[0]}:.* cannot be seen inside an engine"):
        house.put("kv_add", blast_radius={"selector": f"canary,{term}"})
    assert not house.runtime.armed() and house.book.live == ()


def test_a_limit_ends_the_lease(house: House):
    lease = house.put("kv_add", blast_radius={"limit": 2})
    for n in range(4):
        house.engine.run(canary(n), 3)
    until(lambda: bool(lease.ended_by))
    house.book.expire()
    assert (lease.ended_by, lease.applied) == ("limit", 2)


def test_a_seam_that_does_not_fire_is_named(house: House):
    lease = house.put("kv_add")
    house.engine.hooked = False
    request = house.engine.add(canary(1), 12)
    for _ in range(12):
        house.engine.step()
        house.runtime.observe([RequestInfo(request.id, "")])
    until(lambda: "not_firing" in lease.engine)
    assert "12 steps" in lease.engine["not_firing"]


def test_live_traffic_needs_the_points_leave(house: House):
    house.book.limits = type(house.book.limits)()
    with pytest.raises(Forbidden):
        house.put("memory_mark")
    with pytest.raises(Forbidden):
        house.put("attention_break")


def test_a_seam_that_is_not_there_is_refused_by_name(house: House):
    house.engine.seams = house.engine.seams - {Seam.KV}
    with pytest.raises(NotInjectable, match="miniature 1 has no seam kv here; it has: attention, block_pool"):
        house.put("kv_add")
