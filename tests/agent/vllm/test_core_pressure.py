"""Key-value blocks held in a real vLLM: requests queue, and run the moment the blocks come back."""

import threading
import time

import pytest

from tests.agent.vllm.client import Answer, Client, first_change
from tests.agent.vllm.leases import LIVE, eventually, holding
from tests.agent.vllm.schedules import wait_until_proven
from tests.agent.vllm.server import BLOCKS, Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
ALL = {"share": 1.0, "floor": 0}


@pytest.fixture(scope="module", autouse=True)
def _proven(server: Server) -> None:
    """The canaries by which the agent proves its seams after a start hold blocks of their own."""
    wait_until_proven(server, "attention", "embedding", "kv", "media_key", "scheduler")


def free_blocks(server: Server) -> int:
    return int(server.agent()["kv"]["blocks_free"])


def test_a_request_waits_for_blocks_and_finishes_right_after_the_release(server: Server, client: Client, prompt: str):
    before = client.chat(prompt, tokens=8)
    found: list[Answer] = []
    with holding(server, "kv_cache_pressure", ALL, LIVE) as held:
        achieved = held.applied()["achieved"]
        assert achieved["held_blocks"]["max"] == BLOCKS - 1
        waiting = threading.Thread(target=lambda: found.append(client.chat(prompt, tokens=8)))
        waiting.start()
        eventually(client.metrics, lambda m: m["vllm:num_requests_waiting"] >= 1, 20)
        time.sleep(1.0)
        assert not found, "it ran although no block is free"
        assert client.metrics().where("vllm:num_requests_waiting_by_reason", 'reason="capacity"') == 1
        assert free_blocks(server) == 0
        released = time.monotonic()
    waiting.join(30)
    assert found and time.monotonic() - released < 15
    assert first_change(found[0], before) is None
    eventually(lambda: free_blocks(server), lambda free: free == BLOCKS - 1, 10)
    undo = held.read()["undo"]
    assert undo["proven"], undo


def test_blocks_come_back_in_an_idle_engine_by_the_deadline_alone(server: Server, client: Client, prompt: str):
    with holding(server, "kv_cache_pressure", ALL, LIVE, ttl_seconds=2.0) as held:
        held.applied()
        assert free_blocks(server) == 0
        # Nobody asks anything of the engine and nobody releases.
        assert held.undone(10)["proven"]
        assert held.read()["ended_by"] == "ttl"
        assert free_blocks(server) == BLOCKS - 1
    assert client.chat(prompt, tokens=2).status == 200


def test_a_ramp_takes_blocks_step_by_step_in_an_idle_engine_and_a_release_in_its_middle_gives_all_back(server: Server):
    seen = set()
    with holding(server, "kv_cache_pressure", {**ALL, "ramp_seconds": 6.0}, LIVE) as held:
        held.applied()
        eventually(lambda: free_blocks(server), lambda free: seen.add(free) or free <= BLOCKS // 2, 20)
    assert len(seen) >= 3 and min(seen) > 0, seen
    assert free_blocks(server) == BLOCKS - 1
    found = held.read()
    blocks = found["achieved"]["held_blocks"]
    assert (found["applied"], blocks["min"]) == (1, 1), found
    assert BLOCKS - 1 - min(seen) <= blocks["max"] < BLOCKS - 1, found["achieved"]
    assert found["undo"]["proven"] and found["undo"]["figures"]["held_blocks"] == blocks["max"], found["undo"]


def test_part_of_the_blocks_leaves_room_to_run(server: Server, client: Client, prompt: str):
    with holding(server, "kv_cache_pressure", {"share": 0.9, "floor": 4}, LIVE) as held:
        achieved = held.applied()["achieved"]
        taken = int(achieved["held_blocks"]["max"])
        assert taken == round(0.9 * (BLOCKS - 1))
        assert free_blocks(server) == BLOCKS - 1 - taken
        assert client.chat(prompt, tokens=4).status == 200
