"""What of a lease counts at the end, and whether a target came back."""

import threading
from typing import Any

import pytest

from chaos_mm.controls.ending import TargetWatch, hits_of
from chaos_mm.controls.evidence import await_undo, look_at, residue
from chaos_mm.controls.facts import Hits
from chaos_mm.controls.run import HeldLease, Run, summed
from chaos_mm.core.lease import Undo
from tests.edge.conftest import CLOSED, BarePoint


def held(**evidence: Any) -> HeldLease:
    return HeldLease("noise", "image_noise", "image", "proxy", (), 10.0, evidence)


def test_a_lease_as_the_verdict_needs_it() -> None:
    told = held(
        matched=40,
        applied=20,
        errored=1,
        mode="inject",
        ended_by="release",
        blast_radius={"rate": 0.5, "selector": "canary", "limit": 30},
        achieved={"psnr_db": {"count": 20, "mean": 26.0, "min": 25.0, "max": 27.0}},
    )
    assert hits_of(told) == Hits("noise", "image_noise", 40, 20, 0.5, "inject", "release", {"psnr_db": 26.0}, limit=30)


def test_a_lease_of_which_little_is_known_hit_nothing() -> None:
    assert hits_of(held(ended_by="process")) == Hits("noise", "image_noise", 0, 0, 1.0, "inject", "process", {})


@pytest.mark.parametrize(
    ("undo", "found"),
    [
        (None, ("", "", False)),
        ({"pending": True, "proven": False, "reason": ""}, ("it was still under way when last heard of", "", False)),
        ({"pending": False, "proven": False, "reason": "stuck"}, ("stuck", "", False)),
        ({"pending": False, "proven": False, "reason": ""}, ("the point does not say why", "", False)),
        ({"pending": False, "proven": True, "reason": "it broke"}, ("", "it broke", False)),
        ({"pending": False, "proven": True, "reason": "", "figures": {"replacement_pid": 7.0}}, ("", "", True)),
    ],
)
def test_how_far_an_undo_is(undo: dict[str, Any] | None, found: tuple[str, str, bool]) -> None:
    hits = hits_of(held(undo=undo, engine={"fatal": "restart needed"}))
    assert (hits.undo, hits.failed, hits.replaced) == found
    assert hits.fatal == "restart needed"


def test_of_several_points_the_undo_that_is_furthest_from_proven_counts() -> None:
    proven = {"ended_by": "release", "applied": 1, "state": "ended", "undo": {"pending": False, "proven": True}}
    unproven = {**proven, "undo": {"pending": False, "proven": False, "reason": "stuck"}}
    pending = {**proven, "state": "undoing", "undo": {"pending": True, "proven": False}}
    assert summed([proven, unproven])["undo"] == unproven["undo"]
    told = summed([proven, unproven, pending])
    assert (told["undo"], told["state"], told["applied"]) == (pending["undo"], "undoing", 3)


def test_the_later_word_of_each_point_counts_whenever_it_arrives() -> None:
    lease = held()
    lease.learn(
        {"a": {"now": 2.0, "applied": 3, "ended_by": "release"}, "b": {"now": 9.0, "applied": 1, "ended_by": ""}}
    )
    lease.learn({"a": {"now": 1.0, "applied": 1, "ended_by": ""}})  # asked before, and answered late
    assert (lease.evidence["applied"], lease.told["a"]["ended_by"]) == (4, "release")
    lease.learn({"b": {"now": 9.5, "applied": 5, "ended_by": ""}})
    assert lease.evidence["applied"] == 8


def test_of_several_points_one_that_was_replaced_is_told_with_what_it_had_hit() -> None:
    lease = held()
    lease.learn({url: {"now": 1.0, "matched": 4, "applied": 3, "ended_by": ""} for url in ("a", "b")})
    lease.end({"a": None, "b": {"now": 2.0, "matched": 6, "applied": 5, "ended_by": "release"}}, troubled=False)
    assert lease.released.is_set()
    assert {key: lease.evidence[key] for key in ("ended_by", "matched", "applied")} == {
        "ended_by": "process", "matched": 10, "applied": 8,
    }  # fmt: skip


def test_what_had_ended_before_its_point_was_replaced_was_not_ended_by_that() -> None:
    lease = held()
    lease.learn({"a": {"now": 1.0, "matched": 1, "applied": 1, "ended_by": "limit"}})
    lease.end({"a": None}, troubled=False)
    assert lease.evidence["ended_by"] == "limit"


@pytest.fixture
def run(point: BarePoint, token: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("AGENT", "HOST", "LOAD"):
        monkeypatch.setenv(f"CHAOS_MM_{name}_CONTROL_URL", CLOSED)
    return Run("t", configuration={"proxy_control_url": point.url}, secrets={"token": token})


def hold(run: Run, *urls: str) -> HeldLease:
    lease = HeldLease("noise", "image_noise", "image", "proxy", urls, 60.0)
    run.hold(lease)
    return lease


def test_what_lives_is_residue_and_what_is_anothers_is_not(run: Run, point: BarePoint) -> None:
    point.client.put_lease("theirs", {"owner": "somebody", "fault": "image_noise", "keepalive_seconds": 60})
    assert residue(run)[0].live == 0
    point.client.release("theirs", "somebody")
    point.client.put_lease("noise", {"owner": run.id, "fault": "image_noise", "keepalive_seconds": 60})
    left, answer = residue(run)
    assert (left.live, left.unproven) == (1, ())
    assert f"noise of {run.id}" in left.reason
    assert answer["value"] == 1.0


def test_what_is_being_undone_is_residue_until_it_is_undone(run: Run, point: BarePoint) -> None:
    point.client.put_lease("noise", {"owner": run.id, "fault": "image_noise", "keepalive_seconds": 60})
    (lease,) = point.book.live
    released = hold(run, point.url)
    run.release(released)
    lease.undo = Undo()
    released.evidence = look_at(run, released)
    await_undo(run, 0.0)
    left, _ = residue(run)
    assert left.live == 1 and "whose undo is under way" in left.reason
    threading.Timer(0.3, lambda: setattr(lease, "undo", Undo(False, True))).start()
    await_undo(run, 5.0)
    assert residue(run)[0].live == 0
    assert released.evidence["undo"]["proven"] is True and released.evidence["released"] is True


UNDOING = {"pending": True, "proven": False, "reason": ""}


def owing(run: Run, kind: str, point: BarePoint, instance: str = "before") -> HeldLease:
    lease = HeldLease("noise", "kv_cache_noise", "kv_cache", kind, (point.url,), 60.0)
    lease.learn({point.url: {"now": 1.0, "matched": 1, "applied": 1, "undo": UNDOING, "instance": instance}})
    lease.end({}, troubled=False)
    run.hold(lease)
    return lease


def test_what_a_process_inside_the_engine_owed_is_not_waited_for_once_it_is_another(run: Run, point: BarePoint) -> None:
    lease = owing(run, "agent", point)
    began = run.clock()
    await_undo(run, 20.0)
    assert lease.gone and hits_of(lease).gone and hits_of(lease).undo
    assert run.clock() - began < 10.0


@pytest.mark.parametrize("kind", ["host", "agent"])
def test_what_a_hold_or_the_same_process_owes_is_owed(run: Run, point: BarePoint, kind: str) -> None:
    lease = owing(run, kind, point, "before" if kind == "host" else point.book.instance)
    await_undo(run, 0.2)
    assert not lease.gone and not hits_of(lease).gone
    assert hits_of(lease).undo == "it was still under way when last heard of"


def test_a_point_that_does_not_answer_was_not_seen_to_be_another(run: Run, point: BarePoint) -> None:
    lease = owing(run, "agent", point)
    point.server.close()
    await_undo(run, 0.2)
    assert not lease.gone


def test_a_lease_at_a_point_that_answers_and_knows_none_is_gone(run: Run, point: BarePoint) -> None:
    hold(run, point.url)
    assert residue(run)[0].unproven == ()


def test_a_lease_at_a_point_that_does_not_answer_cannot_be_vouched_for(run: Run, point: BarePoint) -> None:
    lease = hold(run, point.url, CLOSED)
    (text,) = residue(run)[0].unproven
    assert text == f"image_noise at the proxy {CLOSED}, which does not answer; without keepalives it ends within 60 s"
    lease.released.set()
    assert residue(run)[0].unproven == ()


def test_what_lives_at_a_point_that_was_slow_a_moment_ago_is_residue(run: Run, point: BarePoint) -> None:
    point.client.put_lease("noise", {"owner": run.id, "fault": "image_noise", "keepalive_seconds": 60})
    run.configuration["proxy_control_url"] = CLOSED  # as a point that did not answer when all were asked
    hold(run, point.url)
    assert residue(run)[0].live == 1


def test_a_target_that_never_answered_cannot_be_gone_but_is_told(caplog: pytest.LogCaptureFixture) -> None:
    watch = TargetWatch(Run("t", configuration={"target_url": CLOSED}))
    watch.begin()
    assert (watch.gone(), watch.replaced()) == (False, None)
    assert f"nothing answers at the target {CLOSED}" in caplog.text and "CHAOS_MM_TARGET_URL" in caplog.text
