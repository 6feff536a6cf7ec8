"""Allocations in a real vLLM's worker: a ceiling that the kernel knows of, and sites that vLLM does not have."""

from pathlib import Path

import pytest

from tests.agent.vllm.client import Client
from tests.agent.vllm.leases import LIVE, arm, holding
from tests.agent.vllm.server import Server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
HEADROOM = 8 << 30


def address_space(pid: int) -> str:
    """Soft limit as the kernel keeps it."""
    (line,) = (line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "address space" in line)
    return line.split()[3]


def test_the_ceiling_is_the_kernels_and_lifted_at_the_end(server: Server, client: Client, prompt: str):
    worker = server.named("Worker")
    before = address_space(worker.pid)
    with holding(server, "memory_ceiling", {"headroom_mib": HEADROOM >> 20}, LIVE) as held:
        achieved = held.applied()["achieved"]
        ceiling = int(address_space(worker.pid))
        assert ceiling == achieved["ceiling_bytes"]["max"]
        assert 0 <= worker.memory_info().vms + HEADROOM - ceiling < 64 << 20
        assert achieved["used_bytes"]["max"] == pytest.approx(worker.memory_info().rss, rel=0.1)
        assert client.chat(prompt, tokens=4).status == 200
    assert address_space(worker.pid) == before
    assert held.read()["undo"]["proven"]


def test_a_site_that_vllm_does_not_have_is_named(server: Server):
    held = arm(server, "allocation_failure", {"site": "kv_growth"}, LIVE)
    try:
        assert "allocated once" in held.failed()
    finally:
        held.release()


def test_an_allocation_that_is_never_made_never_fails(server: Server, client: Client, prompt: str):
    with holding(server, "allocation_failure", {"site": "encoder"}, LIVE) as held:
        held.begun()
        assert client.chat(prompt, tokens=4).status == 200  # text needs no encoder
    assert held.read()["applied"] == 0 and "encoder" not in held.read()["sites"]
    assert held.read()["engine"]["fatal"].startswith("restart needed")
