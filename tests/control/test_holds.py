"""Hold faults in threads: a lease is answered at once, a ramp goes on, an undo is proven or says why not."""

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from chaos_mm.control.holds import Hold, Holds, Kind
from chaos_mm.core.errors import ChaosMMError, NotInjectable
from chaos_mm.core.fault import Effect, Param, Target, fault
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.core.rng import Rng
from tests.host.book import body, opened, wait_for

When = Literal["never", "begin", "ramp", "undo", "forgets", "twice"]


class Thing:
    """What the fault is handed: it remembers what was done to it."""

    def __init__(self, hold: Hold) -> None:
        self.hold, self.events = hold, list[str]()
        self.deadlines: list[float] = []
        MADE.append(self)


MADE: list[Thing] = []


@fault(Target.PROCESS, effect=Effect.EXITS)
def process_thing(
    thing: Thing,
    rng: Rng,
    *,
    fails: Annotated[When, Param("where")] = "never",
    ramp_seconds: Annotated[float, Param("how long", ge=0, le=60)] = 0.0,
    undo_seconds: Annotated[float, Param("how long", ge=0, le=60)] = 0.0,
) -> Iterator[Mapping[str, float]]:
    """Hold a thing."""
    if fails == "begin":
        raise NotInjectable("no such thing")
    record = thing.hold.write("thing", {"what": 1})
    thing.hold.each_renewal(thing.deadlines.append)
    try:
        thing.hold.sleep(ramp_seconds)
        if fails == "ramp":
            raise ChaosMMError("it broke on the way up")
        thing.events.append("held")
        yield {"held_things": 2.0}
        if fails == "twice":
            yield {}
    finally:
        time.sleep(undo_seconds)
        if fails == "undo":
            raise ChaosMMError("it is stuck")
        if fails != "forgets":
            thing.hold.done(record)
        thing.hold.undone({"restored_things": 2.0})
        thing.events.append("undone")


@fault(Target.PROCESS)
def process_other(other: int, rng: Rng) -> Iterator[Mapping[str, float]]:
    """Take what nobody here hands out."""
    yield {}


Opened = tuple[LeaseBook, Holds]


@pytest.fixture
def at_point(tmp_path: Path) -> Iterator[Opened]:
    MADE.clear()
    book, holds, log = opened(process_thing, tmp_path, {Thing: Kind(Thing)})
    yield book, holds
    book.close()
    assert holds.wait(10.0)
    assert len(log.pending()[0]) == sum(thing.hold.left for thing in MADE)


def put(at_point: Opened, **params: Any) -> Lease:
    return at_point[0].put("a", body(process_thing, **params))


def released(at_point: Opened) -> Lease:
    lease = at_point[0].release("a", "run-1")
    assert lease is not None
    wait_for(lambda: lease.undo is not None and not lease.undo.pending, "the undo ends")
    return lease


def test_what_stands_at_once_is_booked_and_undone_with_figures(at_point: Opened):
    lease = put(at_point)
    assert (lease.matched, lease.applied, lease.errored, lease.undo) == (1, 1, 0, None)
    assert lease.achieved["held_things"].to_json() == {"count": 1, "mean": 2.0, "min": 2.0, "max": 2.0}
    undo = released(at_point).undo
    assert undo is not None and (undo.proven, undo.reason, undo.figures) == (True, "", {"restored_things": 2.0})
    assert MADE[0].events == ["held", "undone"]


def test_a_ramp_goes_on_after_the_answer(at_point: Opened):
    began = time.monotonic()
    lease = put(at_point, ramp_seconds=0.6)
    assert time.monotonic() - began < 0.5
    assert lease.applied == 0
    wait_for(lambda: lease.applied == 1, "the ramp ends")
    assert time.monotonic() - began >= 0.6


def test_a_release_in_the_ramp_does_not_wait_for_it(at_point: Opened):
    put(at_point, ramp_seconds=60)
    began = time.monotonic()
    lease = released(at_point)
    assert (lease.applied, lease.undo and lease.undo.proven) == (0, True)
    assert time.monotonic() - began < 5.0


def test_a_failure_at_once_is_the_answer_and_no_lease_comes_to_be(at_point: Opened):
    with pytest.raises(NotInjectable, match="^process_thing: no such thing$"):
        put(at_point, fails="begin")
    assert at_point[0].leases() == []


def test_a_failure_on_the_way_is_evidence(at_point: Opened):
    lease = put(at_point, fails="ramp", ramp_seconds=0.5)
    wait_for(lambda: lease.errored, "it fails")
    assert (lease.applied, lease.undo and lease.undo.proven) == (0, True)  # it was undone, no record is left
    assert lease.undo is not None and lease.undo.reason == "it broke on the way up"


def test_a_slow_undo_is_told_as_such_and_holds_nobody_up(at_point: Opened):
    lease = put(at_point, undo_seconds=0.5)
    began = time.monotonic()
    at_point[0].release("a", "run-1")
    assert time.monotonic() - began < 0.4
    assert lease.to_json(time.monotonic())["state"] == "undoing"
    wait_for(lambda: lease.to_json(time.monotonic())["state"] == "ended", "the undo ends")


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("undo", "it is stuck"),
        ("forgets", "1 undo records are left"),
        ("twice", "process_thing yields more than once"),
    ],
)
def test_an_undo_that_fails_or_leaves_a_record_is_not_proven(at_point: Opened, fails: str, why: str):
    put(at_point, fails=fails)
    undo = released(at_point).undo
    assert undo is not None and (undo.pending, undo.proven, undo.reason) == (False, False, why)


def test_observe_begins_nothing(at_point: Opened):
    lease = at_point[0].put("a", {**body(process_thing), "mode": "observe"})
    assert (lease.matched, lease.applied, MADE) == (1, 0, [])


def test_renewals_reach_whoever_watches(at_point: Opened):
    lease = put(at_point)
    before = list(MADE[0].deadlines)
    time.sleep(0.02)
    at_point[0].keepalive("a", "run-1")
    assert before == [MADE[0].deadlines[0]] and MADE[0].deadlines[-1] == lease.keepalive_end > before[0]


def test_a_hold_ends_at_its_deadline_though_nobody_looks_at_the_book(at_point: Opened):
    lease = at_point[0].put("a", {**body(process_thing), "ttl_seconds": 0.3})
    wait_for(lambda: MADE[0].events[-1:] == ["undone"], "it ends by itself", 3.0)
    assert lease.undo is not None and lease.undo.proven


def test_what_is_fatal_is_said_beforehand_and_what_nobody_hands_out_is_refused(at_point: Opened):
    holds = at_point[1]
    assert str(holds.describe(process_thing)["fatal"]).startswith("restart needed: ")
    assert holds.describe(process_other)["fatal"] == ""
    assert holds.refusal(process_thing) == ""
    assert holds.refusal(process_other) == "nothing here can be handed to process_other"
    assert str(put(at_point).engine["fatal"]).startswith("restart needed: ")


def test_leases_side_by_side_each_end_alone(at_point: Opened):
    book, _ = at_point
    leases = [book.put(f"l{n}", body(process_thing)) for n in range(4)]
    threads = [threading.Thread(target=book.release, args=(f"l{n}", "run-1")) for n in range(0, 4, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: all(leases[n].undo is not None for n in (0, 2)), "two are undone")
    assert [lease.undo is None for lease in leases] == [False, True, False, True]
