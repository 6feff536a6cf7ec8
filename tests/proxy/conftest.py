"""A proxy in this process: data side on a free port, leases put straight into its book."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.point import ControlPoint, PointSettings, start_control
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Point
from chaos_mm.faults import catalogue
from chaos_mm.proxy.command import TARGETS, ProxySettings, proxy_server
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.server import upstream_at
from tests.proxy.wires import Client

OWNER = "r0000000000aa"


@dataclass
class RunningProxy:
    """A started proxy and what a test looks at."""

    url: str
    point: ControlPoint
    metrics: Metrics
    token_file: Path

    def inject(self, fault: str = "image_noise", **body: Any) -> str:
        """Put a lease on every request (live) unless told otherwise; its name."""
        whole: dict[str, Any] = {
            "owner": OWNER,
            "fault": fault,
            "blast_radius": {"rate": 1.0, "selector": "live"},
            "ttl_seconds": 60,
            "keepalive_seconds": 60,
            "seed": 7,
            **body,
        }
        self.point.book.put("test", whole)
        return "test"

    def release(self) -> Mapping[str, Any]:
        self.point.book.release("test", OWNER)
        return self.evidence()

    def evidence(self) -> Mapping[str, Any]:
        return self.point.book.lease("test").to_json(self.point.book.clock())

    def control(self) -> ControlClient:
        return ControlClient(self.point.server.url, self.point.token)

    def canary(self, n: int) -> str:
        return canary_id(canary_key(self.point.token), OWNER, n)

    def count(self, name: str, **labels: str) -> float:
        """A counter's value; 0 when the series is not there."""
        return self.metrics.registry.get_sample_value(f"chaos_mm_proxy_{name}", labels) or 0.0


Connect = Callable[[str], Awaitable[Client]]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Handler], Awaitable[str]]
StartProxy = Callable[..., AbstractAsyncContextManager[RunningProxy]]


@pytest.fixture
def start_proxy(tmp_path: Path) -> StartProxy:
    """`async with start_proxy(upstream_url, **ProxySettings fields) as proxy:`."""

    @asynccontextmanager
    async def started(upstream: str, **settings: Any) -> AsyncIterator[RunningProxy]:
        metrics, token = Metrics(), tmp_path / "token"
        control = PointSettings("http://127.0.0.1:0", token_file=token, allow_live=True, max_rate=1.0)
        point = start_control(control, Point.PROXY, catalogue(), TARGETS, metrics=metrics.text)
        pool = ThreadPoolExecutor(2)
        whole = replace(ProxySettings(upstream, measure_every=1), **settings)
        to = upstream_at(upstream, preserve_host=whole.preserve_host, connect_seconds=whole.connect_seconds)
        server = proxy_server(whole, to, point, metrics, pool)
        await server.start("127.0.0.1", 0)
        try:
            yield RunningProxy(server.url, point, metrics, token)
        finally:
            await server.stop(0.2)
            pool.shutdown()
            await asyncio.to_thread(point.close)

    return started


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`client = await connect(url)`, closed at the end."""
    clients: list[Client] = []

    async def connected(url: str) -> Client:
        clients.append(await Client.to(url))
        return clients[-1]

    yield connected
    for client in clients:
        await client.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`url = await serve(handler)` for an upstream that is a function over raw streams."""
    servers: list[asyncio.Server] = []

    async def served(handler: Handler) -> str:
        servers.append(await asyncio.start_server(handler, "127.0.0.1", 0))
        return f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield served
    for server in servers:
        server.close()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait for what another task or thread does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)
