"""A shipped experiment by ``chaos run``: real proxy, real load, and a service that reads its prompt."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.control.client import ControlClient
from tests.edge.chaos import REPOSITORY, Chaos, Outcome, activity, experiment, injection, wait_for
from tests.edge.upstream import Upstream
from tests.processes import Running, start

TRUNCATION = REPOSITORY / "experiments" / "text-token-truncation.json"
PHASES = {"BASELINE": "3", "FAULT": "4", "RECOVERY": "3"}
CUT = "text_token_truncation"
RELEASE = activity("release", lease=CUT)


def quick_objectives(folder: Path) -> Path:
    """The shipped objectives with windows of 3 s."""
    made = folder / "objectives"
    made.mkdir()
    for path in (REPOSITORY / "experiments" / "objectives").glob("*.yaml"):
        (made / path.name).write_text(re.sub(r'window-seconds: "\d+"', 'window-seconds: "3"', path.read_text()))
    return made


class World:
    """Upstream, proxy and load, and ``chaos`` pointed at them."""

    def __init__(self, folder: Path) -> None:
        self.upstream = Upstream()
        self.proxy: Running = start(
            "proxy", "--upstream", self.upstream.url, "--port", "0", "--control-port", "0", state=folder
        )
        objectives = {"CHAOS_MM_OBJECTIVES": str(quick_objectives(folder))}
        options = ("--proxy-url", self.proxy.url, "--control-port", "0", "--mix", "text=1")
        self.load: Running = start("load", *options, state=folder, env=objectives)
        lengths = {f"CHAOS_MM_{phase}_SECONDS": seconds for phase, seconds in PHASES.items()}
        self.chaos = Chaos(
            folder,
            {
                **lengths,
                "CHAOS_MM_PROXY_CONTROL_URL": self.proxy.control_url,
                "CHAOS_MM_LOAD_CONTROL_URL": self.load.control_url,
                "CHAOS_MM_TARGET_URL": self.upstream.url,
                **objectives,
                "CHAOS_MM_LOAD_RATE": "30",
            },
        )
        self.control = ControlClient(self.load.control_url, token_file=folder / "token")

    def close(self) -> None:
        for one in (self.load, self.proxy):
            one.stop()
        self.upstream.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    folder.chmod(0o700)
    made = World(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hurt(world: World) -> tuple[Outcome, dict[str, Any]]:
    """One run at a dose that truly hurts: what ``chaos`` left, and the run's verdict."""
    got = world.chaos.run(TRUNCATION, "--var", "share:float=0.8", "--var", "side=tail")
    return got, world.chaos.verdicts()[-1]


def test_the_answers_get_worse_under_the_fault_and_right_again(hurt: tuple[Outcome, dict[str, Any]]) -> None:
    got, verdict = hurt
    assert got.journal is not None
    exact = {phase: slis["canary_exact"] for phase, slis in verdict["slis"].items()}
    assert list(exact) == ["baseline", "fault", "recovery"]
    assert all(answer["measured"] and answer["samples"] >= 20 for answer in exact.values())
    assert exact["baseline"]["value"] == exact["recovery"]["value"] == 1.0
    assert exact["fault"]["value"] < 0.5
    assert all(slis["bystander_ok"]["value"] == 1.0 for slis in verdict["slis"].values())
    assert got.activity("text-answers-under-fault")["output"]["value"] < 0.5


def test_the_evidence_of_the_hit_is_kept(hurt: tuple[Outcome, dict[str, Any]]) -> None:
    got, verdict = hurt
    (lease,) = verdict["leases"]
    assert (lease["ended_by"], lease["errored"]) == ("release", 0)
    # A request that was on its way when the lease ended goes out as it came.
    assert lease["matched"] >= lease["applied"] >= max(40, lease["matched"] - 2)
    assert lease["achieved"]["tokens_cut"]["count"] == lease["applied"]
    hits = got.activity("hits")["output"]
    assert (hits["measured"], hits["unit"]) == (True, "requests")


def test_each_phase_is_told_in_one_line(hurt: tuple[Outcome, dict[str, Any]]) -> None:
    lines = [line for line in hurt[0].output.splitlines() if "· worst: " in line]
    assert [line.split(":", 3)[3].split()[0] for line in lines] == ["baseline", "fault", "recovery"]
    assert "text_token_truncation hit" in lines[1]
    assert "worst: text-answers: canary_exact is 0" in lines[1]


def test_the_objective_that_broke_decides(hurt: tuple[Outcome, dict[str, Any]]) -> None:
    got, verdict = hurt
    assert (got.status, got.word) == (1, "deviated"), got.output
    assert got.journal is not None
    assert (got.journal["status"], got.journal["deviated"]) == ("completed", True)
    assert (verdict["words"], verdict["exit_code"]) == (["deviated"], 1)
    (reason,) = verdict["reasons"]
    assert reason["reason"].startswith("fault: text-answers: canary_exact is 0")
    objectives = {one["name"]: one for one in verdict["objectives"]}
    met = {phase: window["met"] for phase, window in objectives["text-answers"]["phases"].items()}
    assert met == {"baseline": True, "fault": False, "recovery": True}
    assert {name for name, one in objectives.items() if not one["named"]} == {"canaries-kept-apart", "no-leaks"}
    assert verdict["recovery_seconds"]["measured"] is True


def test_a_mild_dose_passes(world: World) -> None:
    got = world.chaos.run(TRUNCATION)
    verdict = world.chaos.verdicts()[-1]
    assert (got.status, got.word, verdict["words"]) == (0, "passed", ["passed"]), got.output
    kept = {path.name for path in (world.chaos.folder / "reports" / verdict["folder"]).iterdir()}
    assert kept >= {"events.jsonl", "records.jsonl", "journal.json", "verdict.json", "index.html"}


def test_the_traffic_of_a_run_ends_with_it(world: World) -> None:
    world.chaos.run(experiment(activity("hold", seconds=0.5)))
    assert world.control.get("/status")["sending"] is False


def test_traffic_that_flows_already_is_left_alone(world: World) -> None:
    body = {"rate": 2, "ttl_seconds": 60, "keepalive_seconds": 60}
    world.control.put("/traffic/somebody", body)
    try:
        world.chaos.run(experiment(activity("hold", seconds=0.5)))
        owners = [one["owner"] for one in world.control.get("/status")["traffic"] if one["state"] == "live"]
        assert owners == ["somebody"]
    finally:
        world.control.delete("/traffic/somebody")


def test_start_and_stop_of_the_load(world: World) -> None:
    world.chaos.environment["CHAOS_MM_LOAD_RATE"] = "0"
    probe = activity("sli", type="probe", module="probes", name="canary_exact", phase_seconds=2)
    got = world.chaos.run(experiment(activity("start_load", rate=30, mix="text=1"), probe, activity("stop_load")))
    world.chaos.environment["CHAOS_MM_LOAD_RATE"] = "30"
    assert got.word == "not_applied", got.output  # it injects nothing
    assert got.activity("start_load")["output"]["rate"] == 30
    assert got.activity("sli")["output"]["value"] == 1.0
    assert got.activity("stop_load")["output"] == {"stopped": True}
    assert world.control.get("/status")["sending"] is False


def test_probes_of_evidence(world: World) -> None:
    probes = [
        activity("points_ready", type="probe", module="probes"),
        activity("target_alive", type="probe", module="probes"),
        activity("no_residue", type="probe", module="probes"),
    ]
    got = world.chaos.run(experiment(*probes))
    assert got.word == "not_applied", got.output  # it injects nothing
    values = {name: got.activity(name)["output"]["value"] for name in ("points_ready", "target_alive", "no_residue")}
    assert values == {"points_ready": 1.0, "target_alive": 1.0, "no_residue": 0.0}


def test_after_kill_9_the_answers_are_right_again(world: World) -> None:
    """The worst case of a chaos tool: killed outright, every canary hit, ten minutes to go."""
    proxy = ControlClient(world.proxy.control_url, token_file=world.chaos.folder / "token")
    world.control.put("/traffic/somebody", {"rate": 30, "ttl_seconds": 60, "keepalive_seconds": 60})
    inject = injection(CUT, share=0.8, rate=1.0, ttl_seconds=600, keepalive_seconds=5)
    process = world.chaos.start("run", experiment(inject, activity("hold", seconds=600), rollbacks=[RELEASE]))
    wait_for(lambda: any(lease["applied"] > 5 and lease["state"] == "live" for lease in proxy.leases()))
    before = next(lease for lease in proxy.leases() if lease["state"] == "live")
    os.kill(process.popen.pid, signal.SIGKILL)
    process.popen.wait()
    world.control.put("/marks/after/baseline", {})
    wait_for(lambda: proxy.lease(before["name"], before["owner"])["state"] == "ended")
    world.control.put("/marks/after/recovery", {})
    lease = proxy.lease(before["name"], before["owner"])
    assert lease["ended_by"] == "keepalive"
    assert lease["last_applied_at"] <= lease["ended_at"] <= before["now"] + 5.0 + 1.0  # stamps of the point alone
    time.sleep(2)
    hurt, clean = (world.control.get("/slis/canary_exact", run="after", phase=p) for p in ("baseline", "recovery"))
    world.control.delete("/traffic/somebody")
    assert hurt["value"] < 0.9
    assert (clean["measured"], clean["value"]) == (True, 1.0)


def test_recovery_is_measured_from_the_release(world: World) -> None:
    body = experiment(
        injection(CUT, share=0.8),
        activity("hold", seconds=2),
        RELEASE,
        activity("recovery_seconds", type="probe", module="probes", objectives="text-answers", phase_seconds=5),
        rollbacks=[RELEASE],
    )
    got = world.chaos.run(body)
    answer = got.activity("recovery_seconds")["output"]
    assert answer["measured"], answer
    assert answer["value"] < 1.0
    assert answer["unit"] == "s"


def test_a_load_that_died_is_no_data_and_never_a_pass(world: World) -> None:
    began = time.monotonic()
    world.load.kill()
    gate = {"title": "t", "probes": [_gate()]}
    refused = world.chaos.run(experiment(activity("hold", seconds=0), **{"steady-state-hypothesis": gate}))
    assert (refused.status, refused.word) == (3, "not_applied")
    assert "the load is needed for the SLIs" in refused.output
    assert time.monotonic() - began < 20


def _gate() -> dict[str, object]:
    probe = activity("sli", type="probe", module="probes", objective="text-answers")
    judge = activity("within_objective", type="probe", module="tolerances", objective="text-answers")
    return {**probe, "tolerance": judge}
