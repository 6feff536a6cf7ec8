"""One request and its answer between a client connection and the upstream connection that belongs to it.

The two are paired one to one and live and die together: keep-alive, closes, resets and interim answers reach the
client as the upstream made them, nothing is retried, and no request can meet another's connection.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter

from chaos_mm.proxy.http1 import BadMessage, Body, Framing, RequestHead, ResponseHead, keeps_alive
from chaos_mm.proxy.matching import Outgoing
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.streams import READ_BYTES, Endpoint, SinkBroken, SourceBroken, relay, source_errors, tunnel


class UpstreamFailed(Exception):
    """The upstream gave no answer that could be forwarded; `kind` labels the metric."""

    def __init__(self, kind: str, *, reset: bool = False) -> None:
        super().__init__(kind)
        self.kind, self.reset = kind, reset


@dataclass(slots=True)
class Exchange:
    """Forwards one request. `outcome` is the metric's label: a status class once an answer has begun."""

    request: RequestHead
    out: Outgoing
    client: Endpoint
    upstream: Endpoint
    metrics: Metrics
    outcome: str = "upstream_gone"
    sent_bytes: int = 0
    received_bytes: int = 0
    begun: bool = False

    async def run(self) -> bool:
        """Send, answer; whether both connections can serve another request.

        Raises UpstreamFailed, SinkBroken (client), SourceBroken and BadMessage (client's body).
        """
        self.out.take_back()
        kind = "matched" if self.out.matched else "untouched"
        self.metrics.added.labels(kind).observe(perf_counter() - self.out.ready_at)
        if self._is_short():
            await self._send_quietly()
            return await self._answer()
        upload = asyncio.create_task(self._send_quietly())
        try:
            again = await self._answer()
            # The upstream answered before it had everything: the client still owes the rest of its body.
            if again:
                await upload
            return again
        except UpstreamFailed:
            if upload.done() and not upload.cancelled() and upload.exception() is not None:
                await upload  # the client's fault, not the upstream's
            raise
        finally:
            upload.cancel()
            await asyncio.gather(upload, return_exceptions=True)

    def _is_short(self) -> bool:
        """Whether everything to send is here and fits the write buffer, so that no second task is needed."""
        no_body = self.request.framing().body is Body.NONE
        return no_body or (self.out.complete and sum(map(len, self.out.ready)) <= READ_BYTES)

    async def _send_quietly(self) -> None:
        """Send; an upstream that stopped reading may still answer, so that is left to the answer."""
        try:
            await self._send()
        except SinkBroken:
            self.out.settle(sent=False)
        except (SourceBroken, BadMessage):
            self.upstream.abort()
            raise

    async def _send(self) -> None:
        self.upstream.send_soon(self.out.head)
        for raw in self.out.ready:
            await self.upstream.send(raw)
        self.sent_bytes += sum(map(len, self.out.ready))
        with source_errors():
            async with aclosing(self.out.rest) as body:
                async for raw, _ in body:
                    await self.upstream.send(raw)
                    self.sent_bytes += len(raw)
        self.upstream.flush()
        self.out.settle(sent=True)

    async def _answer(self) -> bool:
        head = await self._final_head()
        framing = _framing(head, self.request.method)
        self.outcome = f"{head.status // 100}xx"
        if self.out.reply_id and head.value(b"x-request-id") is None:
            head.put("x-request-id", self.out.reply_id.encode())
        self.begun = True
        self.client.send_soon(head.encode())
        if head.status == 101:
            await self._tunnel()
            return False
        try:
            await relay(self.upstream.reader, self.client, framing, self._count)
        except SourceBroken as error:
            raise UpstreamFailed("truncated", reset=error.reset) from None
        except BadMessage:
            raise UpstreamFailed("malformed", reset=True) from None
        return framing.body is not Body.UNTIL_CLOSE and keeps_alive(self.request) and keeps_alive(head)

    async def _final_head(self) -> ResponseHead:
        """The answer's head; interim ones (100, 102, 103) are forwarded on the way."""
        while True:
            head = await self._head()
            if not head.interim:
                return head
            if not (head.status == 100 and self.out.continued):
                await self.client.send(head.encode())

    async def _head(self) -> ResponseHead:
        try:
            raw = await self.upstream.head()
            if raw is None:
                raise UpstreamFailed("closed")
            return ResponseHead.read(raw)
        except SourceBroken as error:
            raise UpstreamFailed("closed", reset=error.reset) from None
        except BadMessage:
            raise UpstreamFailed("malformed") from None

    async def _tunnel(self) -> None:
        """After 101 the bytes are no longer HTTP (WebSocket): both directions until both have ended."""
        self.client.reader.on_gone = None
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(tunnel(self.client.reader, self.upstream, self._count_sent))
                both.create_task(tunnel(self.upstream.reader, self.client, self._count))
        except* (SourceBroken, SinkBroken):
            self.client.reset()

    def _count(self, count: int) -> None:
        self.received_bytes += count

    def _count_sent(self, count: int) -> None:
        self.sent_bytes += count


def _framing(head: ResponseHead, method: bytes) -> Framing:
    try:
        return head.framing(method)
    except BadMessage:
        raise UpstreamFailed("malformed") from None
