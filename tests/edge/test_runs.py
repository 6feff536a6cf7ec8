"""Whole runs by real ``chaos`` processes against a real control API: nothing is left behind, whatever happens."""

import json
import os
import signal
import socket
import time
from typing import Any

import pytest

from chaos_mm.core.fault import Point
from tests.edge.chaos import CONTROL, Chaos, activity, armed, experiment, hold, injection, wait_for
from tests.edge.conftest import BarePoint

pytestmark = pytest.mark.runs

INJECT = injection(sigma=0.1)
RELEASE = activity("release", lease="image_noise")


def ends(point: BarePoint) -> list[str]:
    return [lease.ended_by for lease in point.book.leases()]


def test_a_run_injects_waits_and_releases(chaos: Chaos, point: BarePoint) -> None:
    active = activity("fault_active", type="probe", module="probes", lease="image_noise")
    got = chaos.run(experiment(INJECT, hold(0.3), active, RELEASE, title="noise on canaries"))
    assert got.status == 0, got.output
    assert got.activity("fault_active")["output"]["value"] == 1.0
    assert got.activity("release")["output"]["ended_by"] == "release"
    (lease,) = point.book.leases()
    assert (lease.ended_by, lease.spec.reason) == ("release", "noise on canaries")
    assert 0.3 <= lease.ended_at - lease.started_at < 2.0
    assert got.word == "passed"


def test_the_folder_says_what_happened(chaos: Chaos, point: BarePoint) -> None:
    got = chaos.run(experiment(INJECT, hold(0.3), RELEASE))
    (found,) = chaos.verdicts()
    assert found["run"] == point.book.leases()[0].spec.owner
    assert (found["experiment"], found["fault"], found["verdict"]) == ("experiment-1", "image_noise", "passed")
    (lease,) = found["leases"]
    assert (lease["ended_by"], lease["params"], lease["released"]) == ("release", {"sigma": 0.1}, True)
    assert lease["applied"] == lease["matched"] >= lease["expected"] >= 1
    assert [phase["name"] for phase in found["phases"]] == ["baseline", "fault", "recovery"]
    events = [
        json.loads(line)
        for path in chaos.folder.glob("reports/*/events.jsonl")
        for line in path.read_text().splitlines()
    ]
    names = [event["event"] for event in events]
    expected = ["run", "phase", "activity", "phase", "inject", "released", "phase", "rollback", "residue", "verdict"]
    assert [name for name in expected if name not in names] == []
    assert got.output.count(": PASSED: ") == 1
    assert "(report: reports/" in got.output


def test_without_a_rollback_that_releases_nothing_is_injected(chaos: Chaos, point: BarePoint) -> None:
    got = chaos.run(experiment(INJECT, rollbacks=[]))
    assert (got.status, got.word) == (4, "error")
    assert "no rollback releases the lease 'image_noise'" in got.output
    assert point.book.leases() == []


@pytest.mark.parametrize("background", [False, True])
def test_without_the_control_nothing_is_injected(chaos: Chaos, point: BarePoint, background: bool) -> None:
    body = experiment({**INJECT, "background": background}, hold(1.0), activity("release_all"), control=False)
    got = chaos.run(body)
    assert got.status == 4
    assert "name it under 'controls'" in got.output
    assert point.book.leases() == []


@pytest.mark.parametrize("scope", ["before", "after"])
def test_a_control_whose_hooks_are_not_all_called_vouches_for_nothing(
    chaos: Chaos, point: BarePoint, scope: str
) -> None:
    got = chaos.run(experiment(INJECT, hold(0.3), controls=[{**CONTROL, "scope": scope}]))
    assert (got.status, got.word) == (4, "error"), got.output
    assert "was not called, or broke" in got.output
    assert not point.book.armed
    assert scope == "before" or point.book.leases() == []


def test_a_control_given_on_the_command_line_will_do(chaos: Chaos, point: BarePoint) -> None:
    forced = chaos.folder / "control.json"
    forced.write_text('{"verdict": {"provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}}')
    for control in (False, True):  # alone, and together with the file's own
        got = chaos.run(experiment(INJECT, hold(0.3), control=control), "--control-file", str(forced))
        assert got.status == 0, got.output
    assert ends(point) == ["release", "release"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_releases_at_once_and_ends_the_run(chaos: Chaos, point: BarePoint, name: str) -> None:
    process = chaos.start("run", experiment(INJECT, hold(60), hold(60)))
    armed(process, point)
    time.sleep(0.2)  # into the hold
    sent = time.monotonic()
    os.kill(process.popen.pid, getattr(signal, name))
    wait_for(lambda: not point.book.armed)
    assert time.monotonic() - sent < 1.0
    got = process.finish(15)
    assert (got.status, got.word) == (4, "interrupted")
    assert got.journal is not None
    assert got.journal["status"] == "interrupted"
    assert got.journal["interruption"] == {"kind": "signal", "name": name, "reason": f"received {name}"}
    assert ends(point) == ["release"]
    assert chaos.verdicts()[0]["words"][0] == "interrupted"


def test_a_signal_in_a_pause_of_the_toolkit(chaos: Chaos, point: BarePoint) -> None:
    process = chaos.start("run", experiment(INJECT, {**RELEASE, "pauses": {"before": 60}}))
    armed(process, point)
    os.kill(process.popen.pid, signal.SIGTERM)
    got = process.finish(15)
    assert (got.status, got.word) == (4, "interrupted")
    assert ends(point) == ["release"]


def test_a_second_signal_does_not_cancel_the_rollbacks(chaos: Chaos, point: BarePoint) -> None:
    slow = {"type": "action", "name": "slow", "provider": {"type": "process", "path": "sleep", "arguments": "1"}}
    last = chaos.folder / "last"
    touch = {**slow, "name": "last", "provider": {"type": "process", "path": "touch", "arguments": str(last)}}
    process = chaos.start("run", experiment(INJECT, hold(60), rollbacks=[RELEASE, slow, touch]))
    armed(process, point)
    os.kill(process.popen.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(process.popen.pid, signal.SIGTERM)
    got = process.finish(15)
    assert last.exists()
    assert got.status == 4, got.output


def test_a_signal_while_rollbacks_run_still_shows(chaos: Chaos, point: BarePoint) -> None:
    slow = {"type": "action", "name": "slow", "provider": {"type": "process", "path": "sleep", "arguments": "1"}}
    process = chaos.start("run", experiment(INJECT, RELEASE, rollbacks=[slow, RELEASE]))
    wait_for(lambda: "Rollback: slow" in process.output.read_text())
    os.kill(process.popen.pid, signal.SIGTERM)
    got = process.finish(15)
    assert got.status == 4
    assert got.journal is not None
    assert got.journal["status"] == "interrupted"
    assert len(got.journal["rollbacks"]) == 2


def test_after_kill_9_the_lease_ends_by_keepalive(chaos: Chaos, point: BarePoint) -> None:
    inject = injection(sigma=0.1, rate=1.0, ttl_seconds=600, keepalive_seconds=5)
    process = chaos.start("run", experiment(inject, hold(600)))
    armed(process, point)
    (lease,) = point.book.leases()
    wait_for(lambda: lease.last_keepalive_at > lease.started_at)  # renewed at least once
    killed = point.book.clock()
    os.kill(process.popen.pid, signal.SIGKILL)
    process.popen.wait()
    wait_for(lambda: not point.book.armed)
    point.book.expire()
    assert lease.ended_by == "keepalive"
    # All on the point's own clock: at most the keepalive after the last sign of life, hence after the kill.
    assert lease.ended_at - killed <= 5.0 + 1.0
    assert lease.ended_at - lease.last_keepalive_at == pytest.approx(5.0)


def test_keepalives_carry_a_lease_over_several_periods(chaos: Chaos, point: BarePoint) -> None:
    inject = injection(keepalive_seconds=5)
    assert chaos.run(experiment(inject, hold(6.5), RELEASE)).status == 0
    (lease,) = point.book.leases()
    assert lease.ended_by == "release"
    assert lease.ended_at - lease.started_at > 6.0


def test_of_two_runs_at_once_the_second_is_refused(chaos: Chaos, point: BarePoint) -> None:
    first = chaos.start("run", experiment(INJECT, hold(90), RELEASE, title="the first"))
    armed(first, point)
    (lease,) = point.book.leases()
    second = chaos.run(experiment(INJECT, hold(30), RELEASE, title="the second"))
    assert (second.status, second.word) == (3, "not_applied")
    assert lease.spec.owner in second.output
    assert "the first" in second.output
    assert "s left" in second.output
    assert second.journal is not None
    assert second.journal["status"] == "interrupted"
    assert second.journal["run"] == []
    assert lease.live_at(point.book.clock())
    os.kill(first.popen.pid, signal.SIGTERM)
    assert first.finish().word == "interrupted"
    assert (lease.ended_by, len(point.book.leases())) == ("release", 1)


def test_the_stop_latch_ends_a_run_and_blocks_the_next(chaos: Chaos, point: BarePoint) -> None:
    first = chaos.start("run", experiment(INJECT, hold(60), RELEASE))
    armed(first, point)
    point.client.stop()
    stopped = first.finish()
    assert (stopped.status, stopped.word) == (4, "interrupted")
    assert "was ended by 'chaos-mm stop', so this run stops" in stopped.output
    assert stopped.journal is not None
    assert stopped.journal["status"] == "interrupted"
    blocked = chaos.run(experiment(INJECT, RELEASE))
    assert (blocked.status, blocked.word) == (3, "not_applied")
    assert "stopped by hand" in blocked.output
    assert "chaos-mm stop --clear" in blocked.output
    assert ends(point) == ["stop"]
    point.client.clear_stop()
    assert chaos.run(experiment(INJECT, hold(0.3), RELEASE)).status == 0
    assert ends(point) == ["stop", "release"]


def test_an_injection_that_fails_stops_the_run(chaos: Chaos, point: BarePoint) -> None:
    live = injection(selector="live")
    got = chaos.run(experiment(live, activity("hold", seconds=30)))
    assert (got.status, got.word) == (3, "not_applied")
    assert "--allow-live" in got.output
    assert point.book.leases() == []
    assert got.journal is not None
    assert len(got.journal["run"]) == 1


def test_an_injection_that_fails_in_the_background_stops_the_run_too(chaos: Chaos, point: BarePoint) -> None:
    live = injection(selector="live")
    process = chaos.start("run", experiment({**live, "background": True}, hold(60)))
    got = process.finish(20)
    assert (got.status, got.word) == (3, "not_applied")
    assert "did not happen, so this run stops" in got.output
    assert point.book.leases() == []


def test_a_background_wait_does_not_keep_a_stopped_run(chaos: Chaos, point: BarePoint) -> None:
    process = chaos.start("run", experiment({**hold(60), "background": True}, INJECT, hold(60)))
    armed(process, point)
    os.kill(process.popen.pid, signal.SIGTERM)
    assert process.finish(15).status == 4
    assert ends(point) == ["release"]


def test_a_point_that_hangs_costs_a_second_at_most(chaos: Chaos, point: BarePoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts in the kernel, never answers
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        lease = activity("release", lease="image_noise")
        process = chaos.start("run", experiment(INJECT, hold(1.5), lease))
        armed(process, point)
        point.book.close()
        point.close()
        with socket.create_server(("127.0.0.1", point.server.port)):
            got = process.finish()
    assert url
    entry = got.activity("release")
    assert entry["status"] == "failed"
    assert entry["duration"] < 1.2
    assert "without keepalives it ends within 10 s" in got.output
    assert (got.status, got.word) == (5, "not_restored")
    assert chaos.verdicts()[0]["words"][:2] == ["not_restored", "error"]


def test_no_point_at_all_is_refused_before_anything_runs(chaos: Chaos) -> None:
    chaos.environment["CHAOS_MM_PROXY_CONTROL_URL"] = "http://127.0.0.1:9"
    got = chaos.run(experiment(activity("hold", seconds=0), INJECT))
    assert (got.status, got.word) == (3, "not_applied")
    assert "no injection point answers: proxy at http://127.0.0.1:9" in got.output
    assert got.journal is not None
    assert got.journal["run"] == []


def test_release_never_touches_anothers_lease(chaos: Chaos, point: BarePoint) -> None:
    point.client.put_lease("image_noise", {"owner": "somebody", "fault": "image_noise", "keepalive_seconds": 600})
    got = chaos.run(experiment(RELEASE, activity("release_all")))
    assert (got.status, got.word) == (3, "not_applied"), got.output  # it injects nothing
    assert "nothing to undo" in got.activity("release")["output"]["reason"]
    assert got.activity("release_all")["output"]["released"] == 0
    assert point.book.armed


def test_a_point_replaced_under_the_fault_ended_early(chaos: Chaos, point: BarePoint, make_point: Any) -> None:
    process = chaos.start("run", experiment(INJECT, hold(2), RELEASE))
    armed(process, point)
    port = point.server.port
    point.close()
    fresh = make_point(Point.PROXY, port)
    got = process.finish()
    assert (got.status, got.word) == (4, "error"), got.output  # it left early, so it tested little
    assert "went with its point" in got.output
    assert got.activity("release")["output"]["ended_by"] == "process"
    assert fresh.book.leases() == []


def test_a_list_of_points_is_all_or_nothing(chaos: Chaos, point: BarePoint, make_point: Any) -> None:
    other = make_point(Point.PROXY)
    chaos.environment["CHAOS_MM_PROXY_CONTROL_URL"] = f"{point.url}, {other.url}"
    assert chaos.run(experiment(INJECT, hold(0.3), RELEASE)).status == 0
    assert ends(point) == ends(other) == ["release"]
    other.client.put_lease("mine", {"owner": "somebody", "fault": "image_noise", "keepalive_seconds": 600})
    refused = chaos.run(experiment(INJECT, RELEASE))
    assert refused.status == 3
    assert "held by somebody" in refused.output
    assert not point.book.armed


def test_a_probe_without_a_value_cannot_crash_the_run(chaos: Chaos, point: BarePoint) -> None:
    (chaos.folder / "foreign.py").write_text("def nan():\n    return float('nan')\n")
    chaos.environment["PYTHONPATH"] += os.pathsep + str(chaos.folder)
    probe = {"type": "probe", "name": "nan", "provider": {"type": "python", "module": "foreign", "func": "nan"}}
    gate = {"title": "fine", "probes": [{**probe, "tolerance": {"type": "range", "range": [0, 1]}}]}
    got = chaos.run(experiment(INJECT, **{"steady-state-hypothesis": gate}))
    assert got.journal is not None, got.output  # read as strict JSON
    assert got.journal["steady_states"]["before"]["probes"][0]["output"] == "nan"
    assert (got.status, got.word, got.journal["status"]) == (3, "not_steady", "failed")
    assert point.book.leases() == []


def test_another_extensions_list_is_judged_by_its_tolerance(chaos: Chaos) -> None:
    (chaos.folder / "foreign.py").write_text(
        "def names():\n    return ['a', 'b']\n\n\ndef has(value):\n    return 'a' in value\n"
    )
    chaos.environment["PYTHONPATH"] += os.pathsep + str(chaos.folder)
    provider = {"type": "python", "module": "foreign", "func": "names"}
    has = {"type": "python", "module": "foreign", "func": "has", "arguments": {"value": ""}}
    judge = {"type": "probe", "name": "has", "provider": has}
    gate = {"title": "fine", "probes": [{"type": "probe", "name": "names", "provider": provider, "tolerance": judge}]}
    got = chaos.run(experiment(INJECT, hold(0.3), RELEASE, **{"steady-state-hypothesis": gate}))
    assert got.status == 0, got.output


def test_the_control_at_an_activity_as_well(chaos: Chaos, point: BarePoint) -> None:
    """The toolkit then calls the experiment's hooks once more for each."""
    got = chaos.run(experiment({**INJECT, "controls": [{**CONTROL, "name": "again"}]}, hold(0.3), RELEASE))
    assert got.status == 0, got.output
    assert ends(point) == ["release"]
    assert len(chaos.verdicts()) == 1
