"""What an agent says of its engine becomes a probe's answer, and what it does not say becomes "no data"."""

import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import chaos_mm
from chaos_mm import probes, tolerances
from chaos_mm.control.api import ControlApi
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.server import serve_control
from chaos_mm.controls import inside
from chaos_mm.controls import run as live
from chaos_mm.controls.run import HeldLease
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.faults import catalogue
from tests.edge.conftest import CLOSED
from tests.edge.service import Service
from tests.edge.test_probes import is_no_data

GIB = 1 << 30
WHOLE: dict[str, Any] = {
    "loaded": True,
    "engine": {"name": "transformers", "version": "5.24.0", "backend": "sdpa"},
    "seams": {
        "kv": {"available": True, "proven": True, "reason": "", "fired": 3},
        "scheduler": {"available": False, "proven": False, "reason": "one request at a time", "fired": 0},
    },
    "memory": {
        "device": "cpu",
        "used_bytes": 3 * GIB,
        "free_bytes": 5 * GIB,
        "largest_free_block_bytes": None,
        "utilisation_ratio": 0.25,
        "host_available_bytes": 7 * GIB,
    },
    "kv": {"usage_ratio": 0.5, "hit_ratio": 0.75, "blocks_total": 64, "blocks_free": 32},
    "measures": {
        "nonfinite_count": {"value": 4, "unit": "values", "samples": 2, "site": "layer.3"},
        "attention_entropy_nats": [
            {"value": 2.5, "unit": "nats", "samples": 3, "site": "layer.0"},
            {"value": 1.5, "unit": "nats", "samples": 5, "site": "layer.1"},
        ],
        "embedding_shift_sigma": {"value": 0.82, "unit": "sigma", "samples": 9, "site": "projector"},
        "alignment_cosine": None,
    },
}
ASKED = [
    (probes.agent_loaded, {}),
    (probes.kv_cache_usage, {}),
    (probes.kv_cache_hit_ratio, {}),
    (probes.device_memory, {"figure": "free"}),
    (probes.host_memory, {}),
    (probes.nonfinite_count, {}),
    (probes.attention_entropy, {}),
    (probes.attention_collapse, {}),
    (probes.embedding_shift_sigma, {}),
    (probes.alignment_cosine, {}),
]
NAMES = [probe.__name__ for probe, _ in ASKED]


class StandIn:
    """A point with a real control API whose own route answers whatever the test wants."""

    def __init__(self, point: Point, token: str) -> None:
        self.says: Any = {}
        routes = (Route("GET", f"/{point}", self._answer),)
        api = ControlApi(LeaseBook(catalogue(), point=point), token, version=chaos_mm.__version__, routes=routes)
        self.server = serve_control(api, "http://127.0.0.1:0")
        self.url = self.server.url

    def _answer(self, request: Request) -> Response:
        return Response(200, json.dumps(self.says).encode())


@pytest.fixture
def stand_in(token: str) -> Iterator[Callable[[Point], StandIn]]:
    made: list[StandIn] = []

    def make(point: Point = Point.AGENT) -> StandIn:
        made.append(StandIn(point, token))
        return made[-1]

    yield make
    for one in made:
        one.server.close()


@pytest.fixture
def agent(stand_in: Callable[[Point], StandIn]) -> StandIn:
    made = stand_in(Point.AGENT)
    made.says = WHOLE
    return made


@pytest.fixture
def setting(agent: StandIn, token: str) -> dict[str, Any]:
    urls = {"agent_control_url": agent.url, "host_control_url": CLOSED, "target_url": CLOSED}
    return {"configuration": urls, "secrets": {"token": token}}


def test_what_an_agent_says_is_the_answer(setting: dict[str, Any]) -> None:
    values = {probe.__name__: probe(**given, **setting)["value"] for probe, given in ASKED}
    assert values == {
        "agent_loaded": 1.0,
        "kv_cache_usage": 0.5,
        "kv_cache_hit_ratio": 0.75,
        "device_memory": 5.0 * GIB,
        "host_memory": 7.0 * GIB,
        "nonfinite_count": 4.0,
        "attention_entropy": 1.5,  # the lower of two layers
        "attention_collapse": 0.0,  # not measured
        "embedding_shift_sigma": 0.82,
        "alignment_cosine": 0.0,  # not measured
    }
    assert is_no_data(probes.alignment_cosine(**setting)) and is_no_data(probes.attention_collapse(**setting))
    assert probes.attention_entropy(**setting)["samples"] == 8
    assert probes.attention_entropy(site="layer.0", **setting)["value"] == 2.5


def test_a_fact_that_is_null_is_no_data_and_never_zero(setting: dict[str, Any]) -> None:
    answer = probes.device_memory(figure="largest_block", **setting)
    assert is_no_data(answer) and "largest_free_block_bytes" in answer["reason"]
    assert not tolerances.at_least(threshold=0, value=answer)


def test_a_site_that_was_not_measured_is_told_with_those_that_were(setting: dict[str, Any]) -> None:
    answer = probes.nonfinite_count(site="layer.9", **setting)
    assert is_no_data(answer) and "layer.3" in answer["reason"]


@pytest.mark.parametrize(("probe", "given"), ASKED, ids=NAMES)
@pytest.mark.parametrize(
    "says",
    [[], 7, None, {}, {"loaded": "yes"}, {"memory": 3, "kv": [], "measures": {"nonfinite_count": []}}],
    ids=lambda says: json.dumps(says)[:24],
)
def test_an_answer_that_is_none_measures_nothing(
    agent: StandIn, setting: dict[str, Any], probe: Callable[..., Any], given: dict[str, Any], says: Any
) -> None:
    agent.says = says
    answer = probe(**given, **setting)
    json.dumps(answer, allow_nan=False)
    assert answer["value"] == 0.0 and answer["reason"]
    assert is_no_data(answer) or (probe is probes.agent_loaded and answer["measured"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "0.5", 10**400, [0.5]], ids=repr)
def test_a_value_that_is_no_finite_number_is_no_data(agent: StandIn, setting: dict[str, Any], value: Any) -> None:
    agent.says = {**WHOLE, "kv": {"usage_ratio": value}, "measures": {"nonfinite_count": {"value": value}}}
    assert is_no_data(probes.kv_cache_usage(**setting))
    assert is_no_data(probes.nonfinite_count(**setting))


@pytest.mark.parametrize(("probe", "given"), ASKED, ids=NAMES)
def test_without_an_agent_there_is_no_data(setting: dict[str, Any], probe: Callable[..., Any], given: Any) -> None:
    setting["configuration"]["agent_control_url"] = CLOSED
    answer = probe(**given, **setting)
    assert answer["value"] == 0.0 and answer["reason"]
    assert is_no_data(answer) or probe is probes.agent_loaded


def test_an_agent_that_is_not_there_is_not_loaded(agent: StandIn, setting: dict[str, Any]) -> None:
    setting["configuration"]["agent_control_url"] = f"{agent.url},{CLOSED}"
    answer = probes.agent_loaded(**setting)
    assert (answer["value"], answer["samples"], len(answer["engines"])) == (0.5, 2, 1)
    assert CLOSED in answer["reason"]


@pytest.mark.parametrize(
    ("seam", "value", "word"), [("kv", 1.0, ""), ("scheduler", 0.0, "one request at a time"), ("moon", 0.0, "kv")]
)
def test_a_seam_that_the_engine_lacks_is_told(setting: dict[str, Any], seam: str, value: float, word: str) -> None:
    answer = probes.agent_loaded(seam=seam, **setting)
    assert (answer["measured"], answer["value"]) == (True, value)
    assert word in answer["reason"]


def test_of_several_agents_the_worst_is_told(
    stand_in: Callable[[Point], StandIn], agent: StandIn, setting: dict[str, Any]
) -> None:
    other = stand_in(Point.AGENT)
    other.says = {**WHOLE, "memory": {"free_bytes": GIB, "used_bytes": GIB}, "kv": {"usage_ratio": 0.9}}
    setting["configuration"]["agent_control_url"] = f"{agent.url},{other.url}"
    assert probes.device_memory(figure="free", **setting)["value"] == GIB
    assert probes.device_memory(figure="used", **setting)["value"] == 3 * GIB
    assert probes.kv_cache_usage(**setting)["value"] == 0.9
    assert probes.nonfinite_count(**setting)["value"] == 8
    assert is_no_data(probes.device_memory(figure="utilisation", **setting)), "one of two does not say"


def test_the_host_point_speaks_for_the_machine(stand_in: Callable[[Point], StandIn], setting: dict[str, Any]) -> None:
    host = stand_in(Point.HOST)
    host.says = {"memory": {"available_bytes": 2 * GIB, "total_bytes": 8 * GIB}}
    setting["configuration"]["host_control_url"] = host.url
    assert probes.host_memory(**setting)["value"] == 2 * GIB
    assert probes.host_memory(figure="total", **setting)["value"] == 8 * GIB
    assert is_no_data(probes.host_memory(figure="group_available", **setting))


def test_devices_are_seen_by_the_host_point_where_no_agent_tells(
    stand_in: Callable[[Point], StandIn], agent: StandIn, setting: dict[str, Any]
) -> None:
    host = stand_in(Point.HOST)
    setting["configuration"]["host_control_url"] = host.url
    agent.says = {**WHOLE, "memory": {"free_bytes": None}}
    host.says = {"devices": [], "no_device_reason": "no NVIDIA device"}
    answer = probes.device_memory(**setting)
    assert is_no_data(answer) and "no NVIDIA device" in answer["reason"]
    host.says = {"devices": [{"free_bytes": 9 * GIB, "used_bytes": GIB}, {"free_bytes": 3 * GIB, "used_bytes": GIB}]}
    assert probes.device_memory(**setting)["value"] == 3 * GIB
    assert is_no_data(probes.device_memory(figure="utilisation", **setting))


@pytest.mark.parametrize(
    ("probe", "given"),
    [
        (probes.device_memory, {"figure": "colour"}),
        (probes.host_memory, {"figure": "largest_block"}),
        (probes.attention_collapse, {"figure": ""}),
        (probes.generation_alive, {"modality": "smell"}),
        (probes.health_lie_seconds, {"modality": "audio"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_word_that_is_none_is_refused_with_those_there_are(
    setting: dict[str, Any], probe: Callable[..., Any], given: dict[str, str]
) -> None:
    answer = probe(**given, **setting)
    assert is_no_data(answer)
    assert all(word in answer["reason"] for word in ("is not allowed", repr(next(iter(given.values())))))


def test_what_no_agent_says_the_targets_own_metrics_may(agent: StandIn, setting: dict[str, Any]) -> None:
    agent.says = {**WHOLE, "kv": {"usage_ratio": None, "hit_ratio": None}}
    service = Service()
    try:
        setting["configuration"]["target_url"] = service.url
        service.metrics = "\n".join(
            [
                'vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.125',
                'vllm:prefix_cache_queries_total{model_name="x"} 400.0',
                'vllm:prefix_cache_hits_total{model_name="x"} 100.0',
            ]
        )
        assert probes.kv_cache_usage(**setting)["value"] == 0.125
        assert probes.kv_cache_hit_ratio(**setting)["value"] == 0.25
        service.metrics = "vllm:prefix_cache_queries_total 0\nvllm:prefix_cache_hits_total 0\n"
        assert is_no_data(probes.kv_cache_usage(**setting))
        assert is_no_data(probes.kv_cache_hit_ratio(**setting)), "nothing was looked up: no ratio"
    finally:
        service.close()


@pytest.mark.parametrize(
    ("sites", "site", "measured", "value"),
    [
        ({}, "", True, 5.0),
        ({"layer.2": 4, "layer.5": 1}, "", True, 5.0),
        ({"layer.2": 4, "layer.5": 1}, "layer.2", True, 4.0),
        ({"layer.2": 4}, "layer.3", True, 0.0),
        ({}, "layer.2", False, 0.0),
    ],
)
def test_hits_are_told_by_site(sites: dict[str, int], site: str, measured: bool, value: float) -> None:
    evidence = {"applied": 5, "matched": 7, "sites": sites}
    found = {"measured": True, "value": 5.0, "unit": "requests", "samples": 7, "reason": "", "lease": evidence}
    answer = inside.hits_at(found, site)
    assert (answer["measured"], answer["value"]) == (measured, value)
    assert "lease" not in answer and (answer["reason"] == "" or repr(site) in answer["reason"] or not measured)


def test_a_run_asks_its_own_lease_by_site(agent: StandIn, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    held = HeldLease("kv", "kv_cache_noise", "kv_cache", "agent", (agent.url,), 10.0)
    run: Any = SimpleNamespace(id="r1", leases={"kv": held}, secrets={"token": token}, stop=threading.Event())
    monkeypatch.setattr(live, "_current", run)
    answer = probes.fault_hits(lease="kv", site="layer.1")
    assert is_no_data(answer), "the point holds no such lease"
