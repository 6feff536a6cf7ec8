"""Baseline and fault are compared over the same requests, and the baseline is the one from before the fault."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import chaos_mm
from chaos_mm.control.api import ControlApi
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.server import serve_control
from chaos_mm.controls.phases import Phases
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.worst import WorstWindows
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from chaos_mm.sli.objectives import Objective


class FakeLoad:
    """A load whose every answer tells how many were given before and for which phase and modality it was asked."""

    def __init__(self, token: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.marks: list[str] = []
        self.worst: dict[str, dict[str, Any]] = {}  # by SLI
        routes = (
            Route("GET", "/slis", self._slis),
            Route("PUT", "/marks/{run}/{phase}", self._mark),
            Route("GET", "/worst/{sli}", self._worst),
        )
        api = ControlApi(LeaseBook(catalogue(), point=Point.LOAD), token, version=chaos_mm.__version__, routes=routes)
        self.server = serve_control(api, "http://127.0.0.1:0")

    def _slis(self, request: Request) -> Response:
        phase, modality = request.query["phase"], request.query.get("modality", "")
        self.asked.append((phase, modality))
        answer = {"measured": True, "value": 1.0, "samples": len(self.asked), "phase": phase, "modality": modality}
        return Response(200, json.dumps({"slis": {"ok_ratio": answer}}).encode())

    def _worst(self, request: Request, sli: str) -> Response:
        return Response(200, json.dumps(self.worst[sli]).encode())

    def _mark(self, request: Request, run: str, phase: str) -> Response:
        self.marks.append(phase)
        return Response(200, b"{}")


@pytest.fixture
def load(token: str) -> Iterator[FakeLoad]:
    made = FakeLoad(token)
    yield made
    made.server.close()


@pytest.fixture
def run(load: FakeLoad, token: str) -> Run:
    return Run("t", configuration={"load_control_url": load.server.url}, secrets={"token": token})


def hurt(run: Run, *targets: str) -> None:
    for target in targets:
        run.hold(HeldLease(target, f"{target}_fault", target, "proxy", (), 10.0))


def phases_of(run: Run, *objectives: Objective) -> Phases:
    return Phases(run, load_needed=True, worst=WorstWindows(run, objectives, [], {}))


def about(phases: Phases, phase: str) -> tuple[str, str]:
    answer: dict[str, Any] = phases.measured(phase)["ok_ratio"]
    return answer["phase"], answer["modality"]


def test_one_target_is_compared_over_its_own_requests(run: Run, load: FakeLoad) -> None:
    phases = phases_of(run)
    phases.enter("baseline")
    phases.remember_baseline("image_file")
    hurt(run, "image_file")
    phases.enter("fault")
    assert (about(phases, "baseline"), about(phases, "fault")) == (("baseline", "image"), ("fault", "image"))
    assert load.marks == ["baseline", "fault"]


def test_two_targets_are_compared_over_all_requests(run: Run) -> None:
    phases = phases_of(run)
    phases.enter("baseline")
    phases.remember_baseline("image")
    hurt(run, "image")
    phases.enter("fault")
    phases.remember_baseline("audio")
    hurt(run, "audio")
    assert (about(phases, "baseline"), about(phases, "fault")) == (("baseline", ""), ("fault", ""))


def test_the_baseline_told_is_the_one_from_before_the_fault(run: Run, load: FakeLoad) -> None:
    phases = phases_of(run)
    phases.enter("baseline")
    phases.remember_baseline("image")
    before = len(load.asked)
    hurt(run, "image")
    phases.enter("fault")
    phases.remember_baseline("image")  # a second injection: the baseline is over
    assert len(load.asked) == before
    assert phases.measured("baseline")["ok_ratio"]["samples"] <= before


def test_what_no_request_is_about_is_compared_over_all(run: Run) -> None:
    phases = phases_of(run)
    phases.enter("baseline")
    phases.remember_baseline("network")
    hurt(run, "network")
    phases.enter("fault")
    assert (about(phases, "baseline"), about(phases, "fault")) == (("baseline", ""), ("fault", ""))


def test_without_an_injection_nothing_is_remembered(run: Run, load: FakeLoad) -> None:
    phases = phases_of(run)
    phases.enter("baseline")
    assert load.asked == []
    first, second = (phases.measured("baseline")["ok_ratio"]["samples"] for _ in range(2))
    assert (first, second) == (1, 2)


def test_of_a_phase_that_was_over_as_it_began_nothing_is_expected(
    run: Run, load: FakeLoad, caplog: pytest.LogCaptureFixture
) -> None:
    phases = phases_of(run, Objective("answers", "canary_exact", threshold=0.8, min_samples=5))
    load.worst["canary_exact"] = {"measured": False, "value": 0.0, "samples": 0, "reason": "no requests", "windows": 1}
    phases.enter("baseline")
    with caplog.at_level("INFO", logger="chaostoolkit"):
        phases.enter("fault")
    (line,) = caplog.messages
    assert "no data" not in line and "baseline 0.0 s · " in line


def test_each_phase_is_told_in_one_line_with_hits_and_the_worst_objective(
    run: Run, load: FakeLoad, caplog: pytest.LogCaptureFixture
) -> None:
    phases = phases_of(run, Objective("answers", "canary_exact", threshold=0.8, min_samples=5))
    counts = {"measured": True, "unit": "ratio", "windows": 8, "without_data": 0, "started_seconds": 0.0}
    load.worst["canary_exact"] = {**counts, "value": 0.55, "samples": 20}
    phases.enter("baseline")
    hurt(run, "image")
    run.leases["image"].evidence = {"matched": 36, "applied": 35, "errored": 0, "achieved": {}}
    with caplog.at_level("INFO", logger="chaostoolkit"):
        phases.enter("fault")
        phases.enter("recovery")
    first, second = caplog.messages
    assert first.startswith(f"chaos_mm {run.id}: baseline ")
    assert first.endswith("worst: answers: canary_exact is 0.55, not at least 0.8 (n=20)")
    assert "fault" in second and "image_fault hit 35 of 36 requests" in second
