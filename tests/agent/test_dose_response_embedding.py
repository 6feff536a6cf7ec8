"""Damage grows with the shift of the embeddings on the real model, through the real agent, by lease over HTTP.

The demo target is served in this process with the agent attached. Few canaries a dose here; ``long`` asks 300 and
prints the table with Wilson's intervals.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from aiohttp import web

from chaos_mm.agent.transformers.process import ProcessAgent, attach
from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import load_or_create_token
from chaos_mm.core.canary import canary_key
from chaos_mm.load.send import send_canaries
from chaos_mm.sli.statistics import wilson
from chaos_mm.target.command import load_app
from tests.ports import free_ports

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]


@dataclass
class Served:
    """The demo target and its agent, both at addresses of their own."""

    url: str
    key: bytes
    client: ControlClient
    agent: ProcessAgent

    async def exact(self, kind: str, count: int) -> int:
        """How many of the same ``count`` canaries are answered exactly."""
        records = await send_canaries(
            self.url, kind, count, self.key, run="dose", seed=11, stream=False, concurrency=16
        )
        assert [record.error for record in records if not record.ok] == []
        return sum(record.exact is True for record in records)


@pytest_asyncio.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    torch.set_num_threads(1)
    port = free_ports(2)
    token_file = tmp_path / "token"
    token = load_or_create_token(token_file)
    monkeypatch.setenv("CHAOS_MM_AGENT", "1")
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(token_file))
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("CHAOS_MM_AGENT_CONTROL_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("CHAOS_MM_AGENT_MEASURES", "embedding")
    for name in ("CHAOS_MM_AGENT_BOARD", "CHAOS_MM_AGENT_NONCE"):
        monkeypatch.setenv(name, "")
    runner = web.AppRunner(load_app("chaos-mm-tiny"), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port + 1).start()
    agent = attach(runner="demo target")
    try:
        client = ControlClient(f"http://127.0.0.1:{port}", token_file=token_file)
        yield Served(f"http://127.0.0.1:{port + 1}", canary_key(token), client, agent)
    finally:
        agent.close()
        await runner.cleanup()


async def lease_of(served: Served, fault: str, params: dict[str, Any]) -> None:
    """Put a lease that needs no keepalive for the minutes of a dose."""
    body = {"owner": "dose", "fault": fault, "params": params, "ttl_seconds": 900, "keepalive_seconds": 600, "seed": 5}
    await asyncio.to_thread(served.client.put_lease, "dose", body)


async def ended(served: Served) -> dict[str, Any]:
    """Release it and wait for the end of its undo; its evidence."""
    await asyncio.to_thread(served.client.release, "dose", "dose")
    for _ in range(500):
        lease = await asyncio.to_thread(served.client.lease, "dose", "dose")
        if lease["state"] == "ended":
            return lease
        await asyncio.sleep(0.02)
    raise AssertionError(f"its undo did not end: {lease}")


@dataclass(frozen=True)
class Dose:
    """One dose: its exact matches, their 95 % interval, and what was measured inside."""

    dose: float
    exact: int
    count: int
    achieved: float
    measured: float

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.exact, self.count)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.dose:5.2f}  {self.exact / self.count:.3f} [{low:.3f}, {high:.3f}]  achieved {self.achieved:.3f}"
            f"  probe {self.measured:.3f}"
        )


async def curve(served: Served, doses: Sequence[float], kind: str, count: int, **params: Any) -> list[Dose]:
    """The same canaries at each dose; every dose above zero must hit all of them."""
    points = []
    for dose in doses:
        await lease_of(served, "embedding_shift", {"shift_sigma": dose, **params})
        exact = await served.exact(kind, count)
        facts = await asyncio.to_thread(served.client.get, "/agent")
        lease = await ended(served)
        assert lease["errored"] == 0 and lease["undo"]["proven"], lease
        assert (lease["matched"], lease["applied"]) == (count, count if dose else 0)
        achieved = lease["achieved"]["shift_sigma"]["mean"] if dose else 0.0
        points.append(Dose(dose, exact, count, achieved, _probe(facts)))
        if not dose or dose >= 0.5:  # below, what pictures differ by anyhow is as large
            assert points[-1].measured == pytest.approx(dose, abs=0.15)
    print(f"\nembedding_shift {params or ''} on {kind}, {count} canaries a dose\n" + "\n".join(map(str, points)))
    return points


def _probe(facts: dict[str, Any]) -> float:
    """The largest shift of any place, as ``GET /agent`` measured it."""
    return max(entry["value"] for entry in facts["measures"]["embedding_shift_sigma"])


def assert_falls(points: list[Dose]) -> None:
    for weaker, stronger in zip(points, points[1:], strict=False):
        # Within noise: the stronger dose's interval must not lie above the weaker's.
        assert stronger.interval[0] <= weaker.interval[1], f"{stronger} is above {weaker}"
    assert points[-1].interval[1] < points[0].interval[0], f"{points[-1]} overlaps {points[0]}"


async def test_few_canaries_see_damage_grow_and_go(served: Served):
    count = 40
    clean = await served.exact("image", count)
    points = await curve(served, [0, 0.82, 3.0], "image", count)
    assert clean / count >= 0.9 and points[0].exact == clean
    assert_falls(points)
    assert await served.exact("image", count) == clean, "after release every answer is as before"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["image", "audio"])
@pytest.mark.parametrize("place", ["projector", "qformer"])
async def test_three_hundred_canaries_a_dose(served: Served, place: str, kind: str):
    clean = await served.exact(kind, 300)
    points = await curve(served, [0, 0.25, 0.5, 0.82, 1.5, 2.0, 3.0], kind, 300, place=place)
    assert clean / 300 >= 0.95 and points[0].exact == clean
    assert_falls(points)
    assert await served.exact(kind, 300) == clean
