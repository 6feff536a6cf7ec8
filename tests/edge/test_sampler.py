"""One round of samples: what is told, what is kept, and when a guard stops the run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import chaos_mm
from chaos_mm.control.api import ControlApi
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.server import serve_control
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.sampler import Sampler
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from chaos_mm.sli.objectives import Objective
from tests.edge.chaos import wait_for
from tests.edge.conftest import CLOSED, BarePoint

ANSWERS = Objective("answers", "canary_exact", threshold=0.8, window_seconds=5.0, filters={"kind": "image"})
BYSTANDERS = Objective("bystanders", "bystander_ok", threshold=0.9, window_seconds=5.0, guard=True)


class Answering:
    """A load that answers one SLI's question, and remembers how it was asked."""

    def __init__(self, token: str) -> None:
        self.asked: list[dict[str, str]] = []
        self.answer = {"measured": True, "value": 1.0, "unit": "ratio", "samples": 40, "window_seconds": 5.0}
        routes = (Route("GET", "/slis/{sli}", self._sli),)
        api = ControlApi(LeaseBook(catalogue(), point=Point.LOAD), token, version=chaos_mm.__version__, routes=routes)
        self.server = serve_control(api, "http://127.0.0.1:0")

    def _sli(self, request: Request, sli: str) -> Response:
        self.asked.append({"sli": sli, **request.query})
        return Response(200, json.dumps(self.answer).encode())


class Told:
    """An event log of a list."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


@pytest.fixture
def load(token: str) -> Iterator[Answering]:
    made = Answering(token)
    yield made
    made.server.close()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def run(load: Answering, token: str, told: Told) -> Run:
    made = Run("t", configuration={"load_control_url": load.server.url}, secrets={"token": token})
    made.events = told
    return made


def test_each_objective_is_asked_over_its_own_window(run: Run, load: Answering, told: Told) -> None:
    run.enter("baseline")
    sampler = Sampler(run, [ANSWERS, BYSTANDERS])
    sampler.look()
    first, second = load.asked
    assert (first["sli"], first["phase"], first["window_seconds"], first["kind"]) == (
        "canary_exact",
        "baseline",
        "5.0",
        "image",
    )
    assert (second["sli"], "kind" in second, second["run"]) == ("bystander_ok", False, run.id)
    (event,) = told.of("sample")
    assert event["phase"] == "baseline"
    assert event["answers"]["answers"] == {**load.answer, "reason": None, "met": True, "whole": True}
    assert sampler.whole["answers", "baseline"].judged == 1


def test_a_window_that_is_not_whole_is_told_and_not_kept(run: Run, load: Answering, told: Told) -> None:
    run.enter("fault")
    load.answer = {**load.answer, "window_seconds": 2.0, "value": 0.95}
    sampler = Sampler(run, [ANSWERS])
    sampler.look()
    assert told.of("sample")[0]["answers"]["answers"]["whole"] is False
    assert sampler.whole == {}


@pytest.mark.parametrize("phase", ["baseline", "fault", "recovery"])
def test_a_guard_stops_the_run_under_the_fault_alone(run: Run, load: Answering, told: Told, phase: str) -> None:
    run.enter(phase)
    load.answer = {**load.answer, "value": 0.5}
    Sampler(run, [ANSWERS, BYSTANDERS]).look()
    assert run.stop.is_set() == (phase == "fault")
    if phase == "fault":
        assert run.halted_by == "bystanders"
        (note,) = run.notes
        assert note == Reason("halted", note.reason)
        assert told.of("guard")[0]["objective"] == "bystanders"
        assert told.of("stop")


def test_a_load_that_is_gone_is_no_data_and_stops_nothing(told: Told, token: str) -> None:
    run = Run("t", configuration={"load_control_url": CLOSED}, secrets={"token": token})
    run.events = told
    run.enter("fault")
    Sampler(run, [ANSWERS, BYSTANDERS]).look()
    answers = told.of("sample")[0]["answers"]
    assert [one["measured"] for one in answers.values()] == [False, False]
    assert not run.stop.is_set()


def test_the_hits_are_those_of_the_moment_and_are_kept_in_case_the_point_dies(
    run: Run, told: Told, point: BarePoint
) -> None:
    run.enter("fault")
    body = {"owner": run.id, "fault": "image_noise", "keepalive_seconds": 60}
    held = HeldLease("noise", "image_noise", "image", "proxy", (point.url,), 60.0, {"state": "known"})
    point.client.put_lease("noise", body)
    run.hold(held)
    wait_for(lambda: point.book.leases()[0].applied > 2)
    Sampler(run, []).look()
    hits = told.of("sample")[0]["hits"]["noise"]
    assert hits["applied"] == hits["matched"] > 2
    assert (held.evidence["applied"], held.evidence["state"]) == (hits["applied"], "live")
    point.close()
    Sampler(run, []).look()
    assert told.of("sample")[1]["hits"]["noise"] == hits


def test_it_samples_until_it_is_told_to_rest(run: Run, told: Told) -> None:
    run.enter("baseline")
    sampler = Sampler(run, [ANSWERS], period_seconds=0.01)
    sampler.start()
    wait_for(lambda: len(told.of("sample")) > 3)
    sampler.done.set()
    sampler.join(10)
    assert not sampler.is_alive()
