"""Probes say "no data" and never raise, whatever the load or the points answer."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import chaos_mm
from chaos_mm import probes
from chaos_mm.control.api import ControlApi
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.server import serve_control
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from chaos_mm.sli import objectives
from tests.edge.chaos import REPOSITORY
from tests.edge.conftest import CLOSED, BarePoint
from tests.edge.upstream import Upstream

KEYS = {"measured", "value", "unit", "samples", "window_seconds", "reason"}


class FakeLoad:
    """A control API whose ``/slis`` says whatever the test wants, and keeps what was asked."""

    def __init__(self, token: str) -> None:
        self.says: Any = {}
        self.asked: dict[str, str] = {}
        routes = (Route("GET", "/slis/{name}", self._sli),)
        api = ControlApi(LeaseBook(catalogue(), point=Point.LOAD), token, version=chaos_mm.__version__, routes=routes)
        self.server = serve_control(api, "http://127.0.0.1:0")

    def _sli(self, request: Request, name: str) -> Response:
        self.asked = {"name": name, **request.query}
        return Response(200, json.dumps(self.says).encode())


@pytest.fixture
def load(token: str) -> Iterator[FakeLoad]:
    made = FakeLoad(token)
    yield made
    made.server.close()


@pytest.fixture
def setting(load: FakeLoad, token: str) -> dict[str, Any]:
    configuration = {
        "load_control_url": load.server.url,
        "objectives_dir": str(REPOSITORY / "experiments" / "objectives"),
    }
    return {"configuration": configuration, "secrets": {"token": token}}


def is_no_data(answer: dict[str, Any]) -> bool:
    return set(answer) >= KEYS and answer["measured"] is False and answer["value"] == 0.0 and answer["reason"] != ""


def test_an_objective_says_what_is_asked(load: FakeLoad, setting: dict[str, Any]) -> None:
    load.says = {"measured": True, "value": 0.5, "unit": "ratio", "samples": 9, "window_seconds": 15.0, "reason": ""}
    answer = probes.sli(objective="picture-answers", **setting)
    assert answer == {**load.says, "sli": "canary_exact", "phase": ""}
    objective = objectives.load(setting["configuration"]["objectives_dir"])["picture-answers"]
    assert load.asked == {"name": "canary_exact", "window_seconds": str(objective.window_seconds), **objective.filters}


def test_arguments_go_before_the_objective(load: FakeLoad, setting: dict[str, Any]) -> None:
    probes.sli(objective="picture-answers", window_seconds=3, audience="bystander", **setting)
    assert (load.asked["window_seconds"], load.asked["audience"]) == ("3.0", "bystander")


@pytest.mark.parametrize(
    "says",
    [
        [],
        7,
        None,
        {},
        {"measured": True},
        {"measured": True, "value": float("nan")},
        {"measured": True, "value": []},
        {"measured": True, "value": "0.9"},
        {"measured": True, "value": True},
        {"measured": True, "value": 10**400},
    ],
)
def test_an_answer_that_is_none_is_no_data(load: FakeLoad, setting: dict[str, Any], says: Any) -> None:
    load.says = says
    assert is_no_data(probes.sli(name="canary_exact", **setting))


@pytest.mark.parametrize("arguments", [{}, {"objective": "no-such"}])
def test_a_question_that_is_none_is_no_data(setting: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert is_no_data(probes.sli(**arguments, **setting))


def test_without_a_load_there_is_no_data(setting: dict[str, Any]) -> None:
    setting["configuration"]["load_control_url"] = CLOSED
    assert is_no_data(probes.sli(name="canary_exact", **setting))
    assert is_no_data(probes.recovery_seconds(**setting))


@pytest.mark.parametrize("probe", [probes.fault_hits, probes.fault_active, probes.lease_evidence])
def test_a_lease_nobody_holds_is_no_data(probe: Callable[..., Any], setting: dict[str, Any]) -> None:
    assert is_no_data(probe(lease="image_noise", **setting))


def test_residue_is_counted_wherever_it_is(point: BarePoint, setting: dict[str, Any]) -> None:
    setting["configuration"]["proxy_control_url"] = point.url
    clean = probes.no_residue(**setting)
    assert (clean["measured"], clean["value"]) == (True, 0.0)
    point.client.put_lease("left", {"owner": "somebody", "fault": "image_noise", "keepalive_seconds": 60})
    found = probes.no_residue(**setting)
    assert found["value"] == 1.0
    assert "left of somebody" in found["reason"]


def test_nobody_vouches_for_a_point_that_was_named_and_is_silent(setting: dict[str, Any]) -> None:
    setting["configuration"]["proxy_control_url"] = CLOSED
    assert is_no_data(probes.no_residue(**setting))


def test_points_ready_names_the_rest(point: BarePoint, setting: dict[str, Any]) -> None:
    setting["configuration"].update(proxy_control_url=point.url, agent_control_url=CLOSED)
    assert probes.points_ready(**setting)["value"] == 1.0
    answer = probes.points_ready(points="proxy,agent,kubernetes,moon", **setting)
    assert (answer["value"], answer["samples"]) == (0.25, 4)
    assert all(word in answer["reason"] for word in ("agent: ", "kubernetes: ", "moon: "))
    point.client.stop()
    assert "stopped by hand" in probes.points_ready(points="proxy", **setting)["reason"]


def test_the_target_is_alive_when_it_generates(setting: dict[str, Any]) -> None:
    upstream = Upstream()
    try:
        setting["configuration"]["target_url"] = upstream.url
        assert probes.target_alive(**setting)["value"] == 1.0
    finally:
        upstream.close()
    setting["configuration"]["target_url"] = upstream.url.replace("http://", "http://me:hidden@")
    dead = probes.target_alive(**setting)
    assert (dead["measured"], dead["value"]) == (True, 0.0)
    assert dead["reason"]
    assert "hidden" not in str(dead)
