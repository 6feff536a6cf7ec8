"""Where the agent of a real vLLM listens, what it says of the engine, and what becomes of a hold when it hangs."""

import os
import signal
import time

import psutil
import pytest

from chaos_mm.agent.layout import Column
from tests.agent.vllm.client import Canaries, Client, first_change
from tests.agent.vllm.leases import LIVE, engine_core_state, eventually, holding
from tests.agent.vllm.server import BLOCKS, Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
CORE_SEAMS = ("block_pool", "encoder_cache", "media_key", "scheduler")


def listeners(process: psutil.Process) -> set[int]:
    connections = process.net_connections(kind="inet")
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


def test_exactly_one_process_listens_on_the_control_port_and_the_server_has_no_new_route(
    server: Server, client: Client
):
    port = int(server.control_url.rsplit(":", 1)[1])
    holders = [process for process in server.processes() if port in listeners(process)]
    assert [process.pid for process in holders] == [server.process.pid]
    status, body = client.call("GET", "/openapi.json")
    assert status == 200 and b"chaos" not in body and b"lease" not in body


def test_every_seam_of_the_scheduler_is_proven_and_every_process_has_joined(server: Server):
    def proven(found: dict) -> bool:
        return all(found["seams"][seam]["proven"] for seam in CORE_SEAMS)

    found = eventually(server.agent, proven, 120)
    assert found["loaded"] and found["engine"]["name"] == "vllm" and found["engine"]["version"] == "0.32.0"
    workers = {worker["process"]: worker for worker in found["workers"]}
    assert set(CORE_SEAMS) <= set(workers["engine_core"]["seams"])
    assert workers["engine_core"]["pid"] == server.named("EngineCore").pid


def test_key_value_facts_follow_the_traffic(server: Server, client: Client, prompt: str):
    long = prompt * 8
    for _ in range(2):
        assert client.chat(long, tokens=2).status == 200
    found = server.agent()["kv"]
    assert found["blocks_total"] == found["blocks_free"] == BLOCKS - 1
    metrics = client.metrics()
    ratio = metrics["vllm:prefix_cache_hits_total"] / metrics["vllm:prefix_cache_queries_total"]
    assert 0 < ratio < 1 and found["hit_ratio"] == pytest.approx(ratio)


def test_memory_is_that_of_the_worker_and_unknown_facts_are_null(server: Server):
    found = server.agent()["memory"]
    resident = server.named("Worker").memory_info().rss
    assert found["device"] == "cpu" and found["used_bytes"] == pytest.approx(resident, rel=0.1)
    assert found["free_bytes"] is None and found["largest_free_block_bytes"] is None


def test_a_hold_ends_by_its_own_deadline_while_the_control_process_hangs(server: Server, client: Client, prompt: str):
    with holding(server, "kv_cache_pressure", {"share": 1.0, "floor": 0}, LIVE, keepalive_seconds=5.0) as held:
        held.applied()
        assert engine_core_state(server) == Column.STRUCK
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            stopped = time.monotonic()
            eventually(lambda: engine_core_state(server), lambda state: state == Column.CLEAN, 20)
            assert time.monotonic() - stopped < 10
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert eventually(held.read, lambda found: found["ended_by"], 10)["ended_by"] == "keepalive"
        assert held.undone()["proven"]
    assert client.chat(prompt, tokens=2).status == 200


def test_a_worker_that_does_not_answer_in_time_is_not_misread_afterwards(server: Server, client: Client, prompt: str):
    before = client.chat(prompt, tokens=4)
    worker = server.named("Worker")
    worker.suspend()
    try:
        found = server.agent()  # its memory is not to be had within the agent's patience
    finally:
        worker.resume()
    assert found["memory"]["used_bytes"] is None
    assert first_change(client.chat(prompt, tokens=4), before) is None
    assert eventually(server.agent, lambda found: found["memory"]["used_bytes"], 10)["memory"]["device"] == "cpu"


def test_requests_of_users_are_left_alone(server: Server, client: Client, canaries: Canaries, prompt: str):
    before = client.metrics()["vllm:num_preemptions_total"]
    with holding(server, "forced_preemption", {"after_tokens": 2}) as held:
        for name in ("", canaries.next()[:-1] + "0", "cmm-somebody-1-0123456789abcdef"):
            assert client.chat(prompt, tokens=8, request_id=name).status == 200
    assert client.metrics()["vllm:num_preemptions_total"] == before
    assert held.read()["matched"] == 0
