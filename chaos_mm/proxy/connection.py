"""One client connection: its requests one after the other, the proxy's own error answers, and the books."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from chaos_mm.proxy.exchange import Exchange, UpstreamFailed
from chaos_mm.proxy.http1 import BadMessage, RequestHead
from chaos_mm.proxy.matching import Matcher, Outgoing
from chaos_mm.proxy.metrics import Metrics, path_class
from chaos_mm.proxy.policy import Refused, whereabouts
from chaos_mm.proxy.streams import READ_BYTES, Endpoint, SinkBroken, SourceBroken, pieces

logger = logging.getLogger("chaos_mm.proxy")
ERROR_HEADER: Final = "x-chaos-mm-proxy-error"
_LINGER_SECONDS: Final = 2.0
_PHRASES: Final = {
    400: "Bad Request",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where everything goes: `url` for messages, `authority` for Host (empty leaves the client's), how to connect."""

    url: str
    authority: bytes
    connect: Callable[[], Awaitable[Endpoint]]


@dataclass(slots=True)
class Books:
    """What is known of one request when it ends, however it ends."""

    path: str
    outcome: str = "client_gone"
    out: Outgoing | None = None
    exchange: Exchange | None = None

    @property
    def begun(self) -> bool:
        """Whether an answer has begun to reach the client, so that no other can."""
        return self.exchange is not None and self.exchange.begun

    def settle(self) -> None:
        """End a plan that nobody has ended: the request was not sent."""
        if self.out is not None:
            self.out.settle(sent=False)

    def close(self, metrics: Metrics) -> None:
        """Settle and count."""
        self.settle()
        if self.out is not None and self.out.applied:
            metrics.applied.inc()
        if self.exchange is not None:
            metrics.bytes.labels("request").inc(self.exchange.sent_bytes)
            metrics.bytes.labels("response").inc(self.exchange.received_bytes)
        metrics.requests.labels(self.path, self.outcome).inc()


class Connection:
    """Serves one client until either side ends; its upstream connection is opened with the first request."""

    def __init__(self, client: Endpoint, to: Upstream, matcher: Matcher, metrics: Metrics) -> None:
        self._client, self._to, self._matcher, self._metrics = client, to, matcher, metrics
        self._upstream: Endpoint | None = None
        self._replied = False
        self.busy = False

    async def serve(self) -> None:
        """Run to the end; raises nothing but CancelledError when the proxy stops.

        A client that closes its sending side is taken to be gone, as most servers take it.
        """
        self._metrics.connections.inc()
        try:
            while await self._next():
                pass
            if self._replied:
                await self._linger()
            await self._client.close()
        except (SourceBroken, SinkBroken):
            self._client.abort()
        except asyncio.CancelledError:
            if self._client.reader.gone:
                self._client.abort()
                return
            self._client.reset()
            raise
        except Exception as error:  # a bug of ours ends this connection alone, and its text must not reach the log
            self._client.reset()
            logger.error("a connection failed: %s", whereabouts(error))
        finally:
            self._metrics.connections.dec()
            self._drop_upstream()

    async def _next(self) -> bool:
        """One request; False when the connection is to be closed."""
        try:
            raw = await self._client.head()
            if raw is None:
                return False
            request = RequestHead.read(raw)
            request.framing()  # a body that cannot be delimited is refused before anything is forwarded
            if request.method == b"CONNECT":
                raise BadMessage("CONNECT is for forward proxies; this one has a single upstream", 501)
        except BadMessage as error:
            self._metrics.requests.labels("other", "bad_request").inc()
            return await self._reply(error.status, "bad_request", str(error))
        with self._booked(request) as books:
            return await self._request(request, books)

    @contextmanager
    def _booked(self, request: RequestHead) -> Iterator[Books]:
        """While a request is served, the client's leaving cancels it; whatever happens is counted."""
        task, books = asyncio.current_task(), Books(path_class(request.path))
        self._client.reader.on_gone = None if task is None else task.cancel
        self._metrics.in_flight.inc()
        self.busy = True
        try:
            if self._client.reader.gone:
                raise SinkBroken
            yield books
        finally:
            self.busy = False
            self._client.reader.on_gone = None
            self._metrics.in_flight.dec()
            books.close(self._metrics)

    async def _request(self, request: RequestHead, books: Books) -> bool:
        try:
            return await self._forward(request, books)
        except Refused as refusal:
            books.outcome = "refused"
            return await self._reply(refusal.status, refusal.reason, str(refusal), refusal.part)
        except BadMessage as error:
            books.outcome = "bad_request"
            if books.begun:
                return self._break(reset=True)
            return await self._reply(error.status, "bad_request", str(error))
        except UpstreamFailed as failure:
            self._metrics.upstream_errors.labels(failure.kind).inc()
            books.settle()
            if failure.kind in ("unreachable", "malformed") and not books.begun:
                books.outcome = "proxy_error"
                text = f"chaos-mm proxy: upstream {self._to.url} is {failure.kind}"
                return await self._reply(502, f"upstream_{failure.kind}", text)
            books.outcome = "upstream_gone"
            return self._break(failure.reset)

    async def _forward(self, request: RequestHead, books: Books) -> bool:
        info = self._matcher.selects(request)
        if self._to.authority and request.value(b"host") is not None:
            request.put("Host", self._to.authority)
        if info is None:
            out = Outgoing(request.encode(), pieces(self._client.reader, request.framing()))
        else:
            out = await self._matcher.prepare(request, self._client, info)
        books.out = out
        books.exchange = exchange = Exchange(request, out, self._client, await self._connected(), self._metrics)
        again = await exchange.run()
        books.outcome = exchange.outcome
        if again:
            self._rest()
        return again

    async def _connected(self) -> Endpoint:
        if self._upstream is None or self._upstream.reader.gone:
            self._drop_upstream()
            try:
                self._upstream = await self._to.connect()
            except OSError:  # refused, no route, no name, timed out, TLS
                raise UpstreamFailed("unreachable") from None
        self._upstream.reader.on_gone = None
        return self._upstream

    def _rest(self) -> None:
        """Between requests: when the upstream closes its connection, the client's is closed with it."""
        if self._upstream is not None:
            self._upstream.reader.on_gone = self._client.end
            if self._upstream.reader.gone:
                self._client.end()

    def _break(self, reset: bool) -> bool:
        """Pass on the upstream's end: a reset as a reset, an early end as an early end, after what it did send."""
        if reset:
            self._client.reset()
        return False

    def _drop_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.reader.on_gone = None
            self._upstream.abort()
            self._upstream = None

    async def _reply(self, status: int, code: str, message: str, part: str = "") -> bool:
        """An answer of the proxy's own in the shape of OpenAI's errors, then the end of the connection."""
        self._client.reader.on_gone = None
        kind = "proxy_error" if status >= 500 else "invalid_request_error"
        error = {"message": message, "type": kind, "param": part or None, "code": code}
        body = json.dumps({"error": error}).encode()
        lines = (
            f"HTTP/1.1 {status} {_PHRASES[status]}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"{ERROR_HEADER}: {code}",
            "Connection: close",
        )
        await self._client.send("\r\n".join((*lines, "", "")).encode() + body)
        self._replied = True
        return False

    async def _linger(self) -> None:
        """Closing over unread bytes resets the connection and may destroy the answer: read on for a moment."""
        try:
            self._client.writer.write_eof()
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._client.reader.read(READ_BYTES):
                    pass
        except (TimeoutError, OSError):
            self._client.abort()
