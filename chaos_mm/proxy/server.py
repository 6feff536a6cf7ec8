"""The listening side: accepts clients, gives each a `Connection`, ends them all on stop."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from chaos_mm.core.errors import BadRequest, ChaosMMError
from chaos_mm.proxy.connection import Connection, Upstream
from chaos_mm.proxy.matching import Matcher
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.streams import Endpoint, WatchedReader, connect

_BACKLOG = 1024
_DEFAULT_PORTS = {"http": 80, "https": 443}


def upstream_at(url: str, *, preserve_host: bool, connect_seconds: float) -> Upstream:
    """The upstream behind a URL of scheme and authority. Raises BadRequest naming what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(parts):
        raise BadRequest(f"upstream {url!r} is not http://host:port or https://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise BadRequest(f"upstream {url!r} must be scheme, host and port alone: paths pass as the client sends them")
    port = None if parts.port == _DEFAULT_PORTS[parts.scheme] else parts.port
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authority = host if port is None else f"{host}:{port}"
    shown = b"" if preserve_host else authority.encode("ascii" if authority.isascii() else "idna")
    return Upstream(f"{parts.scheme}://{authority}", shown, _connector(parts, connect_seconds))


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _connector(parts: SplitResult, connect_seconds: float) -> Callable[[], Awaitable[Endpoint]]:
    host, tls = parts.hostname or "", ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    if tls is not None:
        tls.set_alpn_protocols(["http/1.1"])
    return lambda: connect(host, port, tls, connect_seconds)


class ProxyServer:
    """Listens on `host:port` (0 takes a free port) until `stop`."""

    def __init__(self, to: Upstream, matcher: Matcher, metrics: Metrics) -> None:
        self._to, self._matcher, self._metrics = to, matcher, metrics
        self._tasks: dict[asyncio.Task[None], Connection] = {}
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Raises ChaosMMError naming the address when it cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._protocol, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise ChaosMMError(f"port {host}:{port} cannot be used: {error.strerror or error}") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self, grace_seconds: float) -> None:
        """Accept no more, drop idle connections, let requests end for a while, then cut them off."""
        if self._server is not None:
            self._server.close()
        busy = [task for task, connection in self._tasks.items() if connection.busy]
        self._cancel(set(self._tasks) - set(busy))
        if busy:
            await asyncio.wait(busy, timeout=grace_seconds)
        left = self._cancel(set(self._tasks))
        await asyncio.gather(*left, return_exceptions=True)

    def _cancel(self, tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        for task in tasks:
            task.cancel()
        return tasks

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = WatchedReader()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = Connection(Endpoint(reader, writer), self._to, self._matcher, self._metrics)
            task = asyncio.get_running_loop().create_task(connection.serve())
            self._tasks[task] = connection
            task.add_done_callback(self._tasks.pop)

        return asyncio.StreamReaderProtocol(reader, connected, loop=asyncio.get_running_loop())
