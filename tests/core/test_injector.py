"""The injector: matched, applied and errored mean what the evidence says they mean."""

from typing import Any

import pytest

from chaos_mm.core.fault import Point, Target
from chaos_mm.core.injector import Injector
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from tests.core.samples import CATALOGUE, Clock, body, request


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    limits = Limits(allow_live=True, max_rate=1.0)
    return LeaseBook(CATALOGUE, point=Point.PROXY, limits=limits, clock=clock)


@pytest.fixture
def injector(book: LeaseBook) -> Injector:
    return Injector(book)


def _hit(injector: Injector, text: str = "hello", **fields: Any) -> str:
    plan = injector.plan(request(**fields))
    if plan is None:
        return text
    made = str(plan.apply(Target.TEXT, text, "0"))
    plan.commit()
    return made


def test_without_a_lease_nothing_may_match(injector: Injector):
    assert not injector.armed
    assert not injector.may_match(request())
    assert injector.plan(request()) is None


def test_a_canary_is_hit_and_counted(injector: Injector, book: LeaseBook, clock: Clock):
    lease = book.put("a", body(params={"count": 2}))
    assert _hit(injector) == "helloxx"
    assert (lease.matched, lease.applied, lease.errored) == (1, 1, 0)
    assert lease.achieved["appended"].to_json() == {"count": 1, "mean": 2.0, "min": 2.0, "max": 2.0}
    assert lease.first_applied_at == lease.last_applied_at == clock.now


def test_users_are_untouched_by_default(injector: Injector, book: LeaseBook):
    lease = book.put("a", body())
    assert not injector.may_match(request(canary=False))
    assert _hit(injector, canary=False) == "hello"
    assert lease.matched == 0


def test_live_hits_everyone(injector: Injector, book: LeaseBook):
    book.put("a", body(blast_radius={"selector": "live"}))
    assert _hit(injector, canary=False) == "hellox"


def test_a_request_without_the_fault_s_modality_is_not_matched(injector: Injector, book: LeaseBook):
    lease = book.put("a", body())
    assert _hit(injector, modalities=frozenset({"image"})) == "hello"
    assert lease.matched == 0


@pytest.mark.parametrize("fields", [{"blast_radius": {"rate": 0.0}}, {"mode": "observe"}, {"params": {"count": 0}}])
def test_rate_zero_observe_and_dose_zero_count_and_harm_nothing(
    injector: Injector, book: LeaseBook, fields: dict[str, Any]
):
    lease = book.put("a", body(**fields))
    assert injector.plan(request()) is None
    assert (lease.matched, lease.applied) == (1, 0)


def test_limit_caps_the_requests_changed_and_then_ends_the_lease(injector: Injector, book: LeaseBook):
    lease = book.put("a", body(blast_radius={"limit": 2}))
    assert [_hit(injector, request_id=f"q{n}") for n in range(4)] == ["hellox", "hellox", "hello", "hello"]
    assert lease.applied == 2
    assert book.lease("a").ended_by == "limit"


def test_limit_counts_requests_in_flight(injector: Injector, book: LeaseBook):
    book.put("a", body(blast_radius={"limit": 1}))
    first = injector.plan(request("q1"))
    assert first is not None
    assert injector.plan(request("q2")) is None
    first.discard("the upstream closed")
    assert injector.plan(request("q3")) is not None


def test_a_fault_that_raises_lets_the_original_pass(
    injector: Injector, book: LeaseBook, caplog: pytest.LogCaptureFixture
):
    lease = book.put("a", body(fault="text_break"))
    assert _hit(injector) == "hello"
    assert (lease.matched, lease.applied, lease.errored) == (1, 0, 1)
    assert "ZeroDivisionError" in caplog.text
    assert "secret words" not in caplog.text


def test_the_same_object_back_is_not_applied(injector: Injector, book: LeaseBook):
    lease = book.put("a", body(fault="image_same"))
    plan = injector.plan(request(modalities=frozenset({"image"})))
    assert plan is not None
    value = object()
    assert plan.apply(Target.IMAGE, value, "0") is value
    plan.commit()
    assert (lease.matched, lease.applied) == (1, 0)


def test_several_leases_act_in_their_order(injector: Injector, book: LeaseBook):
    book.put("a", body(params={"letter": "x"}))
    book.put("b", body(params={"letter": "y"}))
    assert _hit(injector) == "helloxy"


def test_the_point_s_own_measure_goes_to_the_leases_that_changed_the_part(injector: Injector, book: LeaseBook):
    one, two = book.put("a", body()), book.put("b", body(fault="text_break"))
    plan = injector.plan(request())
    assert plan is not None
    plan.apply(Target.TEXT, "hello", "0")
    plan.achieved(Target.TEXT, "0", {"psnr_db": 20.0, "bad": float("nan")})
    plan.commit()
    assert set(one.achieved) == {"appended", "psnr_db"}
    assert not two.achieved


@pytest.mark.parametrize(("after", "text"), [(4.9, "hellox"), (5.0, "hello")])
def test_no_request_is_planned_at_or_after_the_deadline(
    injector: Injector, book: LeaseBook, clock: Clock, after: float, text: str
):
    book.put("a", body(keepalive_seconds=5))
    clock.now += after
    assert _hit(injector) == text


def test_nothing_is_changed_after_the_end_though_it_was_planned_before(
    injector: Injector, book: LeaseBook, clock: Clock
):
    lease = book.put("a", body())
    early, late = injector.plan(request("q1")), injector.plan(request("q2"))
    assert early is not None
    assert late is not None
    assert early.apply(Target.TEXT, "hello", "0") == "hellox"
    assert not early.overtaken
    book.release("a", "run-a")
    assert early.overtaken
    early.discard("the lease ended first")
    assert late.apply(Target.TEXT, "hello", "0") == "hello"
    assert not late.overtaken
    late.commit()
    assert (lease.matched, lease.applied, lease.errored) == (2, 0, 0)


def test_a_part_that_could_not_be_put_back_is_no_application(injector: Injector, book: LeaseBook):
    lease = book.put("a", body())
    plan = injector.plan(request())
    assert plan is not None
    plan.apply(Target.TEXT, "one", "0")
    plan.apply(Target.TEXT, "two", "1")
    plan.undo(Target.TEXT, "0", "cannot be encoded")
    plan.commit()
    assert (lease.applied, lease.errored) == (1, 1)
    assert lease.achieved["appended"].count == 1


def test_two_leases_of_one_fault_draw_apart(book: LeaseBook, injector: Injector):
    from tests.core.samples import text_draw

    one, two = book.put("a", body(fault="text_draw")), book.put("b", body(fault="text_draw"))
    plan = injector.plan(request())
    assert plan is not None
    first, second = plan.apply(Target.TEXT, "", "0").split()
    assert first != second
    plan.commit()
    assert one.applied == two.applied == 1
    assert text_draw.name in book.catalogue


def test_what_can_only_be_matched_may_not_be_changed(injector: Injector, book: LeaseBook):
    book.put("a", body(mode="observe"))
    assert injector.may_match(request())
    assert not injector.may_change(request())
    book.release("a", "run-a")
    book.put("a", body())
    assert injector.may_change(request())


def test_a_limit_reached_after_the_hard_end_does_not_move_it(injector: Injector, book: LeaseBook, clock: Clock):
    lease = book.put("a", body(ttl_seconds=10, blast_radius={"limit": 1}))
    plan = injector.plan(request())
    assert plan is not None
    plan.apply(Target.TEXT, "hello", "0")
    clock.now += 14
    plan.commit()
    assert (lease.ended_by, lease.ended_at) == ("ttl", 1010.0)


def test_a_plan_is_settled_once(injector: Injector, book: LeaseBook):
    book.put("a", body())
    plan = injector.plan(request())
    assert plan is not None
    plan.commit()
    with pytest.raises(RuntimeError):
        plan.discard("again")


def test_evidence_is_strict_json(injector: Injector, book: LeaseBook, clock: Clock):
    import json

    lease: Lease = book.put("a", body())
    _hit(injector)
    shown = json.loads(json.dumps(lease.to_json(clock()), allow_nan=False))
    assert shown["state"] == "live"
    assert shown["expires_in_seconds"] == 60.0
