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
        blast_radius={"rate": 0.5, "selector": "canary"},
        achieved={"psnr_db": {"count": 20, "mean": 26.0, "min": 25.0, "max": 27.0}},
    )
    assert hits_of(told) == Hits("noise", "image_noise", 40, 20, 0.5, "inject", "release", {"psnr_db": 26.0})


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
