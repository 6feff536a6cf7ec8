"""An engine that takes no step after a lease has ended: where its workers do not undo by themselves, they are asked."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import WorkerWord
from chaos_mm.agent.mirror import Mirror
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm.adapter import VllmAdapter
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Point, Seam, Target, fault
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.core.rng import Rng
from tests.agent.conftest import until
from tests.agent.vllm.test_worker_parts import FACTS

TOKEN = "t" * 43
STEP_SECONDS = 300.0
CANARY = canary_id(canary_key(TOKEN), "r1", 1)


@fault(Target.KV_CACHE)
def kv_ones(write: Any, rng: Rng) -> Any:
    """Write ones where the test says."""
    return write(torch.ones(4))


class Client:
    """vLLM's client with one worker on a device: what is asked is answered between its steps, in its own thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.asked = runtime, list[str]()

    async def collective_rpc(self, question: str, **options: Any) -> list[Any]:
        assert options["timeout"] == STEP_SECONDS, "a shorter one would leave an answer that nobody waits for"
        self.asked.append(question)
        self.runtime.tick()
        return [{"taint": {}}]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    monkeypatch.setattr("chaos_mm.agent.vllm.gate.refusal", lambda: "")
    monkeypatch.setattr("chaos_mm.agent.vllm.adapter.step_seconds", lambda: STEP_SECONDS)
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_bytes_go_back_in_an_idle_engine(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, device: str
):
    board = Board.create(tmp_path / "board", new_nonce())
    catalogue, step = {"kv_ones": kv_ones}, threading.Lock()
    runtime = Runtime(board, catalogue, token=TOKEN, process="Worker")
    runtime.declare(Seam.KV)
    runtime.watch(step if device == "cpu" else None)  # as ``WorkerAgent`` does
    client = Client(runtime)
    adapter = VllmAdapter(client, loop, [{**FACTS, "device": device, "refused": {}}])
    monkeypatch.setattr(adapter, "prove", lambda seam: runtime.fired(seam) or "")
    mirror = Mirror(adapter, board)
    book = LeaseBook(catalogue, point=Point.AGENT, limits=Limits(), actuator=mirror)
    mirror.start()
    until(lambda: mirror.proofs.reason(Seam.KV) == "")
    lease = book.put("lease", {"owner": "r1", "fault": "kv_ones", "ttl_seconds": 60, "keepalive_seconds": 60})
    cache = torch.zeros(4)
    with step:
        runtime.tick()
        (armed,) = runtime.leases(Seam.KV)
        assert armed.chosen(RequestInfo(CANARY, ""))
        armed.strike(lambda new: armed.write(cache, new), CANARY, "kv", "kv_cache")
    assert cache.eq(1).all()
    steps = board.workers()[0].get(WorkerWord.STEPS)
    book.release("lease", "r1")
    until(lambda: lease.undo is not None and not lease.undo.pending)
    assert cache.eq(0).all() and lease.undo is not None and lease.undo.proven, lease.undo
    evidence = client.asked.count("chaos_mm_evidence")
    if device == "cpu":  # only what the eviction of derived blocks asks
        assert evidence == 1 and board.workers()[0].get(WorkerWord.STEPS) == steps + 1
    else:
        assert evidence >= 2
    mirror.close()
    runtime.close()
    board.close()


def test_an_engine_that_cannot_be_asked_stays_pending_and_is_asked_again(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
):
    class Deaf(Client):
        async def collective_rpc(self, question: str, **options: Any) -> list[Any]:
            if len(self.asked) < 2:
                self.asked.append(question)
                raise ConnectionError("the engine core is busy")
            return await super().collective_rpc(question, **options)

    board = Board.create(tmp_path / "board", new_nonce())
    runtime = Runtime(board, {"kv_ones": kv_ones}, token=TOKEN, process="Worker")
    runtime.declare(Seam.KV)
    runtime.watch()
    client = Deaf(runtime)
    adapter = VllmAdapter(client, loop, [{**FACTS, "device": "cuda", "refused": {}}])
    mirror = Mirror(adapter, board)
    mirror.start()
    cache = torch.zeros(4)
    book = LeaseBook({"kv_ones": kv_ones}, point=Point.AGENT, limits=Limits(), actuator=mirror)
    monkeypatch.setattr(mirror, "refusal", lambda fault: "")
    lease = book.put("lease", {"owner": "r1", "fault": "kv_ones", "ttl_seconds": 60, "keepalive_seconds": 60})
    runtime.tick()
    (armed,) = runtime.leases(Seam.KV)
    armed.strike(lambda new: armed.write(cache, new), CANARY, "kv", "kv_cache")
    book.release("lease", "r1")
    until(lambda: len(client.asked) == 2)
    assert cache.eq(1).all() and lease.undo is not None and "has not undone it yet" in lease.undo.reason
    until(lambda: lease.undo is not None and not lease.undo.pending)
    assert cache.eq(0).all() and lease.undo.proven
    mirror.close()
    runtime.close()
    board.close()
