"""A real vLLM whose API server is killed while blocks are held. Named to run last of those that share its server."""

import time

import pytest

from chaos_mm.agent.layout import Column
from tests.agent.vllm.leases import LIVE, arm, engine_core_state, eventually
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
KEEPALIVE = 5.0


def test_a_hold_ends_by_its_own_deadline_although_the_api_server_was_killed(server: Server):
    held = arm(server, "kv_cache_pressure", {"share": 1.0, "floor": 0}, LIVE, keepalive_seconds=KEEPALIVE)
    held.applied()
    assert engine_core_state(server) == Column.STRUCK
    server.process.kill()
    server.process.wait(10)
    killed = time.monotonic()
    # vLLM 0.32 leaves its engine core and worker behind then, agent or not; the engine core must be free of us.
    eventually(lambda: engine_core_state(server) == Column.CLEAN or not server.processes(), bool, 20)
    assert time.monotonic() - killed < KEEPALIVE + 5
