"""Leases: one owner, two deadlines, five ends, none of which moves."""

import contextlib
import threading
from typing import Any

import pytest

from chaos_mm.core.errors import (
    Forbidden,
    InvalidParams,
    LeaseConflict,
    NotInjectable,
    OwnedByAnother,
    Stopped,
    UnknownFault,
    UnknownLease,
)
from chaos_mm.core.fault import Point, Target
from chaos_mm.core.lease_book import LeaseBook, Limits
from tests.core.samples import CATALOGUE, Clock, body


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(CATALOGUE, point=Point.PROXY, clock=clock)


def test_a_lease_lives_until_its_ttl(book: LeaseBook, clock: Clock):
    lease = book.put("a", body(ttl_seconds=20, keepalive_seconds=600))
    clock.now += 19.9
    assert book.armed
    clock.now += 0.2
    assert not book.armed
    assert book.leases() == [lease]
    assert (lease.ended_by, lease.ended_at) == ("ttl", 1020.0)


def test_the_same_body_again_is_a_keepalive_and_never_moves_the_hard_end(book: LeaseBook, clock: Clock):
    first = book.put("a", body(ttl_seconds=20))
    for _ in range(4):
        clock.now += 4
        assert book.put("a", body(ttl_seconds=20)) is first
    clock.now += 4.1
    assert not book.armed
    assert book.lease("a").ended_by == "ttl"


def test_a_lost_keepalive_ends_it_at_the_deadline(book: LeaseBook, clock: Clock):
    book.put("a", body(ttl_seconds=600, keepalive_seconds=5))
    clock.now += 4
    book.keepalive("a", "run-a")
    clock.now += 300
    lease = book.lease("a")
    assert (lease.ended_by, lease.ended_at) == ("keepalive", 1009.0)


def test_keepalive_of_an_ended_or_foreign_lease_is_refused(book: LeaseBook, clock: Clock):
    book.put("a", body(keepalive_seconds=5))
    with pytest.raises(OwnedByAnother):
        book.keepalive("a", "run-b")
    clock.now += 6
    with pytest.raises(UnknownLease):
        book.keepalive("a", "run-a")


def test_a_second_owner_is_refused_with_name_reason_and_time_left(book: LeaseBook, clock: Clock):
    book.put("a", body(reason="friday game day", ttl_seconds=50))
    clock.now += 8
    with pytest.raises(OwnedByAnother, match=r"held by run-a \(friday game day\): lease 'a' has 42 s left at most"):
        book.put("b", body("run-b"))
    assert [lease.name for lease in book.live] == ["a"]


def test_another_body_under_the_same_name_is_a_conflict(book: LeaseBook):
    book.put("a", body(params={"count": 1}))
    with pytest.raises(LeaseConflict, match="release it first"):
        book.put("a", body(params={"count": 2}))


def test_more_owners_where_the_point_allows_them(clock: Clock):
    book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=Limits(max_owners=2), clock=clock)
    book.put("a", body("run-a"))
    book.put("b", body("run-b"))
    with pytest.raises(LeaseConflict):
        book.put("a", body("run-b"))
    with pytest.raises(OwnedByAnother):
        book.put("c", body("run-c"))


def test_release_ends_it_and_gone_is_success(book: LeaseBook):
    book.put("a", body())
    released = book.release("a", "run-a")
    assert released is not None
    assert released.ended_by == "release"
    assert book.release("a", "run-a") is released
    assert book.release("never", "run-a") is None


def test_release_of_another_s_lease_is_refused_unless_forced(book: LeaseBook, caplog: pytest.LogCaptureFixture):
    book.put("a", body())
    with pytest.raises(OwnedByAnother):
        book.release("a", "run-b")
    assert book.armed
    book.release("a", "run-b", force=True)
    assert not book.armed
    assert "released by force by run-b" in caplog.text


def test_stop_releases_all_and_latches(book: LeaseBook):
    book.put("a", body())
    assert book.stop() == 1
    assert book.lease("a").ended_by == "stop"
    with pytest.raises(Stopped, match="chaos-mm stop --clear"):
        book.put("a", body())
    book.clear_stop()
    assert book.put("a", body()).ended_by == ""


def test_a_request_that_was_released_or_stopped_while_it_waited_arms_nothing(book: LeaseBook, clock: Clock):
    arrived = clock.now
    clock.now += 0.5
    book.release("a", "run-a")
    with pytest.raises(LeaseConflict, match="released while this request waited"):
        book.put("a", body(), arrived)
    assert book.put("b", body(), arrived).ended_by == ""
    book.stop()
    book.clear_stop()
    with pytest.raises(LeaseConflict):
        book.put("c", body(), arrived)
    clock.now += 0.1
    assert book.put("a", body()).ended_by == ""


def test_a_lease_read_after_its_deadline_says_how_it_ended(book: LeaseBook, clock: Clock):
    lease = book.put("a", body(ttl_seconds=20, keepalive_seconds=600))
    shown = lease.to_json(clock.now + 21)
    assert (shown["state"], shown["ended_by"], shown["ended_at"]) == ("ended", "ttl", 1020.0)


def test_close_ends_leases_with_the_process(book: LeaseBook):
    book.put("a", body())
    book.close()
    assert book.lease("a").ended_by == "process"


def test_ended_leases_stay_readable_for_an_hour(book: LeaseBook, clock: Clock):
    book.put("a", body())
    book.release("a", "run-a")
    clock.now += 3599
    assert book.lease("a").ended_by == "release"
    clock.now += 2
    with pytest.raises(UnknownLease):
        book.lease("a")


def test_each_owner_s_evidence_stays_when_a_name_is_used_again(book: LeaseBook):
    first = book.put("a", body("run-a"))
    book.release("a", "run-a")
    second = book.put("a", body("run-b"))
    assert book.lease("a", "run-a") is first
    assert book.lease("a") is second


def test_ended_leases_are_bounded_in_number(book: LeaseBook):
    for n in range(1100):
        book.put(f"l{n}", body())
        book.release(f"l{n}", "run-a")
    assert len(book.leases()) <= 1001


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"fault": "nope"}, UnknownFault, "no fault 'nope'; there are: image_same"),
        ({"ttl_seconds": 4000}, InvalidParams, r"ttl_seconds=4000 .*\[0.1, 3600\] s"),
        ({"ttl_seconds": 0}, InvalidParams, "ttl_seconds=0"),
        ({"keepalive_seconds": 4.9}, InvalidParams, r"keepalive_seconds=4.9 .*\[5, 600\]"),
        ({"owner": ""}, InvalidParams, "owner=''"),
        ({"owner": "a\nb"}, InvalidParams, "owner="),
        ({"reason": "a\nforged log line"}, InvalidParams, "reason="),
        ({"blast_radius": {"limit": False}}, InvalidParams, "limit=False"),
        ({"blast_radius": {"limit": ""}}, InvalidParams, "limit=''"),
        ({"seed": 2**63}, InvalidParams, "seed=9223372036854775808 .*9223372036854775807"),
        ({"params": {"count": "10%"}}, InvalidParams, r"text_append: count='10%' .*\[0, 9\]"),
        ({"mode": "maybe"}, InvalidParams, "mode='maybe'"),
        ({"seed": -1}, InvalidParams, "seed=-1"),
        ({"colour": 1}, InvalidParams, "unknown field 'colour'"),
        ({"blast_radius": {"selector": "live"}}, Forbidden, "--allow-live --max-rate"),
        ({"severity": 2}, InvalidParams, "severity=2"),
    ],
)
def test_bad_bodies_are_refused_before_any_harm(book: LeaseBook, fields: dict[str, Any], error: type, words: str):
    with pytest.raises(error, match=words):
        book.put("a", body(**fields))
    assert not book.live


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a" * 65, "a b", "../x"])
def test_bad_names_are_refused(book: LeaseBook, name: str):
    with pytest.raises(InvalidParams, match="lease name"):
        book.put(name, body())


def test_live_traffic_needs_permission_and_stays_under_its_rate(clock: Clock):
    book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=Limits(allow_live=True, max_rate=0.2), clock=clock)
    with pytest.raises(Forbidden, match="--max-rate 0.2"):
        book.put("a", body(blast_radius={"selector": "live", "rate": 0.3}))
    assert book.put("a", body(blast_radius={"selector": "live", "rate": 0.2})).live_at(clock())


def test_what_carries_content_is_refused_on_live_traffic_by_name(clock: Clock):
    book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=Limits(allow_live=True, max_rate=1), clock=clock)
    with pytest.raises(Forbidden, match="media_pool_swap carries content"):
        book.put("a", body(fault="media_pool_swap", blast_radius={"selector": "live"}))


def test_a_point_without_that_target_refuses_by_name(clock: Clock):
    limits = Limits(targets=frozenset({Target.IMAGE}))
    book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=limits, clock=clock)
    with pytest.raises(NotInjectable, match="text_append acts on text"):
        book.put("a", body())
    with pytest.raises(NotInjectable):
        LeaseBook(CATALOGUE, point=Point.LOAD, clock=clock).put("a", body())


def test_threads_cannot_hold_it_for_two_owners():
    book = LeaseBook(CATALOGUE, point=Point.PROXY)
    winners, start = [], threading.Barrier(16)

    def claim(n: int) -> None:
        start.wait()
        with contextlib.suppress(OwnedByAnother):
            winners.append(book.put("a", body(f"run-{n}")).spec.owner)

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
