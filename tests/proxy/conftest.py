"""A proxy in this process: data side on a free port, leases put straight into its book."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chaos_mm.control.api import ControlApi
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Point
from chaos_mm.core.injector import Injector
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.faults import catalogue
from chaos_mm.proxy.command import TARGETS, ProxySettings, proxy_server, sampling
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.samples import Samples
from chaos_mm.proxy.server import upstream_at
from tests.proxy.wires import Client

OWNER, TOKEN = "r0000000000aa", "a token of no use"


@dataclass
class RunningProxy:
    """A started proxy and what a test looks at."""

    url: str
    book: LeaseBook
    metrics: Metrics
    samples: Samples
    control: ControlApi

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
        self.book.put("test", whole)
        return "test"

    def release(self) -> Mapping[str, Any]:
        self.book.release("test", OWNER)
        return self.evidence()

    def evidence(self) -> Mapping[str, Any]:
        return self.book.lease("test").to_json(self.book.clock())

    def canary(self, n: int) -> str:
        return canary_id(canary_key(TOKEN), OWNER, n)

    def count(self, name: str, **labels: str) -> float:
        """A counter's value; 0 when the series is not there."""
        return self.metrics.registry.get_sample_value(f"chaos_mm_proxy_{name}", labels) or 0.0


Connect = Callable[[str], Awaitable[Client]]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Handler], Awaitable[str]]
StartProxy = Callable[..., AbstractAsyncContextManager[RunningProxy]]


@pytest.fixture
def start_proxy() -> StartProxy:
    """`async with start_proxy(upstream_url, **ProxySettings fields) as proxy:`."""

    @asynccontextmanager
    async def started(upstream: str, **settings: Any) -> AsyncIterator[RunningProxy]:
        metrics, limits = Metrics(), Limits(allow_live=True, max_rate=1.0, targets=TARGETS)
        book = LeaseBook(catalogue(), point=Point.PROXY, limits=limits)
        whole = replace(ProxySettings(upstream, measure_every=1), **settings)
        to = upstream_at(upstream, preserve_host=whole.preserve_host, connect_seconds=whole.connect_seconds)
        with ThreadPoolExecutor(2) as pool:
            samples, routes = sampling(whole.limits, metrics)
            control = ControlApi(book, TOKEN, version="0", routes=routes)
            server = proxy_server(whole, to, Injector(book), TOKEN, metrics, pool, samples)
            await server.start("127.0.0.1", 0)
            try:
                yield RunningProxy(server.url, book, metrics, samples, control)
            finally:
                await server.stop(0.2)

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
