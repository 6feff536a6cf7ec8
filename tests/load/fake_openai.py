"""A fake OpenAI-compatible service for the load's tests: it answers text canaries, and misbehaves as told.

A fake on purpose: it does what no real model does on demand (hang, cut, 500), so that the load can be held to it.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[str, dict[str, Any]], str]


def repeat_code(request_id: str, body: dict[str, Any]) -> str:
    """The digits of the question, as a model that reads would say them."""
    return "".join(re.findall(r"\b[0-9]\b", body["messages"][0]["content"][-1]["text"]))


@dataclass
class FakeOpenAI:
    """``mode`` is how it behaves towards requests that arrive from now on."""

    mode: str = "ok"
    answer: Answer = repeat_code
    gap_seconds: float = 0.0
    url: str = ""
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    peers: list[tuple[str, int]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        request_id = request.headers.get("x-request-id", "")
        self.seen.append((request_id, body))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.transport is not None:
            self.peers.append(request.transport.get_extra_info("peername"))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._answer(request, request_id, body)
        finally:
            self.open -= 1

    async def _answer(self, request: web.Request, request_id: str, body: dict[str, Any]) -> web.StreamResponse:
        mode = self.mode
        if mode == "hang":
            await asyncio.sleep(3600)
        if mode == "status":
            return web.json_response({"error": {"message": "no"}}, status=500)
        if mode == "redirect":
            return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"})
        if mode == "html":
            return web.Response(text="<p>hello</p>", content_type="text/html")
        text = self.answer(request_id, body)
        if not body["stream"]:
            reason = mode if mode in ("abort", "error") else "stop"
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
            return web.json_response({"choices": [choice]})
        return await self._stream(request, text, mode)

    async def _stream(self, request: web.Request, text: str, mode: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(_event({"delta": {"role": "assistant", "content": ""}}))
        for place, letter in enumerate(text):
            if mode == "cut" and place == 2 and request.transport is not None:
                request.transport.abort()
                return response
            if mode == "error_event" and place == 2:
                await response.write(b'data: {"error": {"message": "engine died"}}\n\n')
                return response
            await asyncio.sleep(self.gap_seconds)
            await response.write(_event({"delta": {"content": letter}}))
        if mode == "garbage":
            await response.write(b"data: {not json\n\n")
        if mode == "null_choices":
            await response.write(b'data: {"choices": null, "usage": {}}\n\n')
        if mode != "no_finish":
            reason = mode if mode in ("abort", "error") else "stop"
            await response.write(_event({"delta": {}, "finish_reason": reason}))
            await response.write(b'data: {"choices": [], "usage": {"completion_tokens": 4}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        if mode == "hold":
            await asyncio.sleep(3600)
        return response


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


@asynccontextmanager
async def serving(fake: FakeOpenAI) -> AsyncIterator[FakeOpenAI]:
    """Serve it on a free port of 127.0.0.1."""
    app = web.Application(client_max_size=16 << 20)
    app.router.add_post("/v1/chat/completions", fake.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()
