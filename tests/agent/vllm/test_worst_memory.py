"""A real vLLM whose encoder cannot allocate: the engine ends, as the lease says. Named to run among the last."""

import http.client

import psutil
import pytest

from tests.agent.vllm.client import Client, picture
from tests.agent.vllm.leases import LIVE, arm
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
LATE = 2


def test_a_failed_allocation_of_the_encoder_ends_the_engine_with_the_allocators_words(server: Server, client: Client):
    family = server.processes()
    held = arm(server, "allocation_failure", {"site": "encoder"}, LIVE)
    held.begun()
    assert held.read()["engine"]["fatal"].startswith("restart needed")
    try:
        answer = client.chat("what is shown here?", tokens=4, images=[picture(7)], timeout=60)
    except (OSError, http.client.HTTPException):
        pass  # it may be gone before it answers
    else:
        assert answer.status == 500
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert "DefaultCPUAllocator: can't allocate memory (at encoder, by lease allocation_failure" in server.tail(400)
