"""The connector whose loads fail, on stand-ins of vLLM's base class: what it claims, ships, waits for and declares."""

import importlib
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import SEAMS, Column, WorkerWord
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process, uncached
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Seam
from chaos_mm.faults import catalogue

TOKEN = "t" * 43
BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
NAME = "chaos_mm.agent.vllm.connector"
SIZE = 4


def canary(number: int = 1) -> str:
    return f"chatcmpl-{canary_id(canary_key(TOKEN), 'r1', number)}-0123abcd"


class BaseConnector:
    """Of vLLM's KVConnectorBase_V1, what the connector uses."""

    def __init__(self, vllm_config: Any, role: str, kv_cache_config: Any = None) -> None:
        self.metadata: Any = None

    def _get_connector_metadata(self) -> Any:
        return self.metadata


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The connector's module, with a stand-in where it imports vLLM."""
    base = ModuleType(BASE)
    vars(base).update(
        KVConnectorBase_V1=BaseConnector,
        KVConnectorMetadata=type("KVConnectorMetadata", (), {}),
        KVConnectorRole=SimpleNamespace(SCHEDULER="scheduler", WORKER="worker"),
    )
    parents = BASE.split(".")
    for depth in range(1, len(parents)):
        monkeypatch.setitem(sys.modules, ".".join(parents[:depth]), ModuleType(".".join(parents[:depth])))
    monkeypatch.setitem(sys.modules, BASE, base)
    sys.modules.pop(NAME, None)
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    board = Board.create(tmp_path / "board", new_nonce())
    made = Runtime(board, token=TOKEN, process="engine_core")
    monkeypatch.setattr(process, "runtime", lambda name: made)
    yield made
    made.close()
    board.close()


@pytest.fixture
def make(module: ModuleType, runtime: Runtime) -> Any:
    config = SimpleNamespace(cache_config=SimpleNamespace(block_size=SIZE))
    return lambda role="scheduler": module.ChaosConnector(config, role)


def arm(runtime: Runtime, limit: int = 0, **params: Any) -> None:
    fault = catalogue()["kv_cache_load_failure"]
    spec = {"name": "lease", "fault": fault.name, "params": fault.bind(params), "seed": 1, "mode": "inject"}
    radius = {"rate": 1.0, "selector": "canary", "limit": limit}
    runtime.page.publish(0, 1, {**spec, "owner": "r1", "radius": radius}, time.monotonic_ns() + 60 * 10**9)


def request(name: str, tokens: int = 11) -> Any:
    return SimpleNamespace(request_id=name, num_prompt_tokens=tokens, mm_features=[])


class Given:
    """Stands for vLLM's KVCacheBlocks."""

    def __init__(self, *blocks: int) -> None:
        self.blocks = list(blocks)

    def get_block_ids(self) -> tuple[list[int]]:
        return (self.blocks,)


def claimed(connector: Any, asked: Any, computed: int, *blocks: int) -> Any:
    """A request as vLLM schedules it; what goes to the workers with the step."""
    count, later = connector.get_num_new_matched_tokens(asked, computed)
    assert later is False
    connector.update_state_after_alloc(asked, Given(*blocks), count)
    return connector.build_connector_meta(None)


def test_unarmed_it_claims_nothing_and_passes_nothing(make: Any, runtime: Runtime):
    connector = make()
    assert claimed(connector, request(canary()), 0, 1, 2, 3).loads == []
    assert Seam.KV_LOAD in runtime.page.workers()[0].seams
    assert runtime.page.workers()[0].get(WorkerWord.FIRED + SEAMS.index(Seam.KV_LOAD)) == 0


@pytest.mark.parametrize(
    ("tokens", "computed", "blocks"),
    [(11, 0, [1, 2]), (11, 4, [2]), (12, 0, [1, 2]), (13, 0, [1, 2, 3]), (11, 8, []), (4, 0, []), (5, 0, [1])],
)
def test_the_full_blocks_of_a_prompt_are_claimed_but_never_its_last_token(
    make: Any, runtime: Runtime, tokens: int, computed: int, blocks: list[int]
):
    arm(runtime)
    connector = make()
    loads = claimed(connector, request(canary(), tokens), computed, 1, 2, 3, 4).loads
    assert [load.blocks for load in loads] == ([blocks] if blocks else [])
    assert [load.tokens for load in loads] == ([SIZE * len(blocks)] if blocks else [])
    assert connector.build_connector_meta(None).loads == [], "once, with one step"


def test_only_whom_a_lease_picks_and_each_once(make: Any, runtime: Runtime):
    arm(runtime, limit=1)
    connector = make()
    assert claimed(connector, request("chatcmpl-somebody-0123abcd"), 0, 1, 2, 3).loads == []
    one = request(canary(1))
    assert len(claimed(connector, one, 0, 1, 2, 3).loads) == 1
    assert connector.get_num_new_matched_tokens(one, 0) == (0, False), "as where it is computed anew"
    assert claimed(connector, request(canary(2)), 0, 4, 5, 6).loads == [], "the limit is one"
    column = runtime.column(0)
    assert [column.get(word) for word in (Column.MATCHED, Column.APPLIED)] == [2, 1]


def test_a_request_that_found_no_room_is_asked_again_and_counted_once(make: Any, runtime: Runtime):
    arm(runtime)
    connector, one = make(), request(canary())
    assert connector.get_num_new_matched_tokens(one, 0) == (8, False)
    (load,) = claimed(connector, one, 4, 7, 8, 9).loads
    assert (load.tokens, load.blocks) == (4, [8])
    assert runtime.column(0).get(Column.APPLIED) == 1


def test_a_claimed_request_shares_no_block_even_where_the_lease_ends_at_once(
    make: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    arm(runtime)
    one, cached = request(canary()), list[str]()
    make().get_num_new_matched_tokens(one, 0)
    runtime.page.withdraw(0)
    monkeypatch.setattr(uncached, "_runtimes", [runtime])
    uncached._door(lambda coordinator, asked, tokens: cached.append(asked.request_id))(None, one, 8)
    assert cached == []


def test_nothing_is_kept_of_a_request_that_has_ended(make: Any, runtime: Runtime):
    arm(runtime)
    connector, one = make(), request(canary())
    connector.get_num_new_matched_tokens(one, 0)
    assert connector.request_finished(one, []) == (False, None)
    connector.update_state_after_alloc(one, Given(1, 2, 3), 8)
    assert connector.build_connector_meta(None).loads == []


def test_an_error_of_ours_claims_nothing_and_leaves_the_engine_alone(
    make: Any, runtime: Runtime, caplog: pytest.LogCaptureFixture
):
    arm(runtime)
    assert make().get_num_new_matched_tokens(SimpleNamespace(request_id=canary()), 0) == (0, False)
    assert "could not be claimed" in caplog.text


def loaded(make: Any, metadata: Any) -> Any:
    """A worker's connector that was given it, as its executor does: pickled."""
    worker = make("worker")
    worker.metadata = pickle.loads(pickle.dumps(metadata))
    worker.start_load_kv(None)
    return worker


def test_a_declared_failure_names_its_blocks_once(make: Any, runtime: Runtime):
    arm(runtime)
    worker = loaded(make, claimed(make(), request(canary()), 0, 5, 6, 7))
    assert worker.get_block_ids_with_load_errors() == {5, 6}
    assert worker.get_block_ids_with_load_errors() == set()
    worker.metadata = object()  # of another connector
    worker.start_load_kv(None)
    assert worker.get_block_ids_with_load_errors() == set()


@pytest.mark.parametrize("known", [True, False])
def test_a_silent_failure_is_followed_or_else_declared(
    make: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, known: bool
):
    arm(runtime, declared=False)
    marked = list[Any]()
    flight = SimpleNamespace(id=canary())
    agent = SimpleNamespace(
        book=SimpleNamespace(live={canary(): flight} if known else {}),
        taint=SimpleNamespace(mark=lambda *what: marked.append(what)),
    )
    monkeypatch.setattr(process, "worker_agents", lambda: (agent,))
    worker = loaded(make, claimed(make(), request(canary()), 0, 5, 6, 7))
    assert worker.get_block_ids_with_load_errors() == (set() if known else {5, 6})
    assert marked == ([("r1/lease", flight, [5, 6])] if known else [])


def test_damage_that_cannot_be_followed_is_declared(
    make: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    arm(runtime, declared=False)
    monkeypatch.setattr(process, "worker_agents", lambda: (SimpleNamespace(),))
    worker = loaded(make, claimed(make(), request(canary()), 0, 5, 6, 7))
    assert worker.get_block_ids_with_load_errors() == {5, 6} and "is declared" in caplog.text


def test_a_slow_load_takes_its_time_and_ends_with_the_lease(make: Any, runtime: Runtime):
    arm(runtime, delay_seconds=0.3)
    metadata = claimed(make(), request(canary()), 0, 5, 6, 7)
    began = time.monotonic()
    assert loaded(make, metadata).get_block_ids_with_load_errors() == {5, 6}
    assert time.monotonic() - began >= 0.3
    metadata.loads[0].delay_seconds = 60.0
    runtime.page.withdraw(0)
    began = time.monotonic()
    assert loaded(make, metadata).get_block_ids_with_load_errors() == {5, 6}
    assert time.monotonic() - began < 5.0
