"""From a request's head to what goes upstream: stream it, or hold it, plan, and send it changed or as it came."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final
from uuid import uuid4

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.canary import read_canary_id
from chaos_mm.core.injector import Injector, Plan
from chaos_mm.proxy.held import Budget, Held, Pieces
from chaos_mm.proxy.http1 import Body, RequestHead
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.openai import ENDPOINTS
from chaos_mm.proxy.policy import Limits, OnUndecodable, Refused, Undecodable
from chaos_mm.proxy.rewrite import Rewriter, Rewritten
from chaos_mm.proxy.streams import Endpoint, pieces

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Outgoing:
    """What goes upstream: `head`, then `ready`, then `rest` as it arrives (nothing when `complete`).

    `original` is what `head` and `ready` were before a fault changed them. `reply_id` goes into the answer as
    x-request-id when this proxy made the id of a changed request; `continued` says that the client was already told to
    send its body; `ready_at` is on `perf_counter`.
    """

    head: bytes
    rest: Pieces
    complete: bool = False
    ready: list[bytes] = field(default_factory=list)
    reply_id: str = ""
    continued: bool = False
    matched: bool = False
    original: tuple[bytes, list[bytes]] | None = None
    applied: bool = False
    plan: Plan | None = None
    ready_at: float = field(default_factory=perf_counter)
    release: Callable[[], None] = lambda: None
    committed: Callable[[], None] = lambda: None

    def take_back(self) -> None:
        """Called at the last moment: when a lease that changed the request has ended, the original goes out."""
        if self.original is not None and self.plan is not None and self.plan.overtaken:
            (self.head, self.ready), self.original, self.reply_id = self.original, None, ""
            plan, self.plan = self.plan, None
            plan.discard("the lease ended first")

    def settle(self, *, sent: bool) -> None:
        """Book the plan and give held memory back; later calls do nothing."""
        plan, self.plan = self.plan, None
        if plan is not None and sent:
            plan.commit()
            self.applied = self.original is not None
            self.committed()
        elif plan is not None:
            plan.discard("it did not reach the upstream")
        self.release()


@dataclass(frozen=True, slots=True)
class Matcher:
    """Decides for each request, and rewrites those that a lease selects; one for the whole proxy."""

    injector: Injector
    canary_key: bytes
    limits: Limits
    on_undecodable: OnUndecodable
    rewriter: Rewriter
    pool: ThreadPoolExecutor
    metrics: Metrics
    budget: Budget

    def selects(self, request: RequestHead) -> RequestInfo | None:
        """The request's description when a live lease may select it; None when it streams through untouched."""
        if not self.injector.armed or request.method != b"POST":
            return None
        path = request.path
        if path not in ENDPOINTS or ENDPOINTS[path].media_type not in _text(request.value(b"content-type")).lower():
            return None
        headers: dict[str, str] = {}
        for name, value in request.fields:  # RFC 9110 §5.3: a field that stands twice is one list
            known = headers.get(_text(name))
            headers[_text(name)] = _text(value) if known is None else f"{known}, {_text(value)}"
        given = headers.get("x-request-id", "")
        canary = read_canary_id(self.canary_key, given) is not None
        info = RequestInfo(given or uuid4().hex, path, headers, canary=canary)
        return info if self.injector.may_match(info) else None

    async def prepare(self, request: RequestHead, client: Endpoint, info: RequestInfo) -> Outgoing:
        """Hold the body, plan, rewrite.

        Raises Refused by policy, and SourceBroken, SinkBroken or BadMessage of the client.
        """
        self.metrics.matched.inc()
        held = Held(self.budget, self.limits.max_body_bytes)
        out = Outgoing(request.encode(), pieces(client.reader, request.framing()), matched=True, release=held.release)
        try:
            made = await self._rewritten(request, client, held, out, info)
        except BaseException:
            held.release()
            raise
        out.plan, out.ready, out.committed = made.plan, held.raw, made.committed
        if made.changed:
            out.original = (out.head, out.ready)
            out.ready = [made.body]
            _mend(request, info, out, len(made.body))
        return out

    async def _rewritten(
        self, request: RequestHead, client: Endpoint, held: Held, out: Outgoing, info: RequestInfo
    ) -> Rewritten:
        """What to send instead; by policy, what cannot be decoded is as it was."""
        try:
            self._check_head(request)
            if b"100-continue" in request.tokens(b"expect"):
                await client.send(_CONTINUE)
                out.continued = True
            payload = await held.fill(out.rest)
            out.complete, out.ready_at = True, perf_counter()
            return await self._in_worker(payload, info)
        except Undecodable as error:
            self.metrics.undecodable.labels(error.reason).inc()
            # What no lease will change must reach the service whatever is wrong with it.
            if self.on_undecodable == "refuse" and self.injector.may_change(info):
                raise Refused(error.reason) from None
            return Rewritten(b"", None)

    def _check_head(self, request: RequestHead) -> None:
        if request.value(b"content-encoding") is not None:
            raise Undecodable("content_encoding")
        if request.framing().length > self.limits.max_body_bytes:
            raise Undecodable("body_too_large")

    async def _in_worker(self, payload: bytes, info: RequestInfo) -> Rewritten:
        """Rewrite in the pool. When the client leaves meanwhile, a plan that comes too late is discarded."""
        future = self.pool.submit(self.rewriter.rewrite, payload, info)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if not future.cancel():
                future.add_done_callback(_discard)
            raise


def _mend(request: RequestHead, info: RequestInfo, out: Outgoing, length: int) -> None:
    """Make the head true for a changed body of `length` bytes."""
    if not request.value(b"x-request-id"):
        request.put("x-request-id", info.id.encode())
        out.reply_id = info.id
    if request.framing().body is Body.CHUNKED:
        request.drop((b"transfer-encoding", b"trailer"))
    request.put("Content-Length", str(length).encode())
    out.head = request.encode()


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("latin-1")


def _discard(future: "Future[Rewritten]") -> None:
    if future.exception() is None and (plan := future.result().plan) is not None:
        plan.discard("the client left")
