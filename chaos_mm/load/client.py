"""One request to an OpenAI-compatible service, timed from the outside; whatever happens comes back as a ``Reply``."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from chaos_mm.core.errors import TooLarge
from chaos_mm.load.sse import EventReader

MAX_ANSWER = 512  # characters kept of an answer
MAX_RESPONSE_BYTES = 4 << 20
KEEPALIVE_SECONDS = 3.0  # under the 5 s after which uvicorn closes an idle connection, so none is used while it closes
_END_SECONDS = 0.2  # for the end of a response after [DONE]
_BROKEN_OFF = ("abort", "error")  # finish reasons with which engines say that they gave up

Clock = Callable[[], float]


@dataclass(slots=True)
class Reply:
    """What came back, on the clock of the sender. ``error`` is "" or one word of ``sli.records.Record``."""

    sent_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float = 0.0
    max_gap_seconds: float | None = None
    chunks: int = 0
    status: int = 0
    finish_reason: str = ""
    complete: bool = False
    error: str = ""
    response_bytes: int = 0
    answer: str = ""

    def content(self, text: str, now: float) -> None:
        """A piece of the answer arrived."""
        if not text:
            return
        if self.last_token_at is not None:
            self.max_gap_seconds = max(self.max_gap_seconds or 0.0, now - self.last_token_at)
        self.first_token_at = now if self.first_token_at is None else self.first_token_at
        self.last_token_at = now
        self.chunks += 1
        if len(self.answer) < MAX_ANSWER:
            self.answer = (self.answer + text)[:MAX_ANSWER]


class Transport(Protocol):
    """Sends one request; never raises for what the service does."""

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
        """The reply to a chat completion request; at ``deadline`` (seconds of the clock) it is a timeout."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where requests go. ``api_key`` goes out as a bearer token and is shown nowhere."""

    url: str
    model: str
    stream: bool = True
    max_tokens: int = 24
    api_key: str = field(default="", repr=False)

    def body(self, content: list[dict[str, Any]]) -> bytes:
        """The JSON of a greedy chat completion with one user message."""
        message = {"role": "user", "content": content}
        asked = {"model": self.model, "messages": [message], "temperature": 0, "max_tokens": self.max_tokens}
        return json.dumps({**asked, "stream": self.stream}).encode()


class HttpTransport:
    """Keeps connections and puts no limit on them: a limit would close the loop. Use as ``async with``."""

    def __init__(
        self, service: Service, clock: Clock = time.monotonic, keepalive_seconds: float = KEEPALIVE_SECONDS
    ) -> None:
        self._url = f"{service.url.rstrip('/')}/v1/chat/completions"
        self._headers = {"Content-Type": "application/json"}
        if service.api_key:
            self._headers["Authorization"] = f"Bearer {service.api_key}"
        self._clock, self._keepalive = clock, keepalive_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._keepalive)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
        """See Transport."""
        reply = Reply(sent_at=self._clock())
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                await self._exchange(body, headers, reply)
        except TimeoutError:
            reply.error = reply.error if reply.ended_at else "timeout"
        except TooLarge:
            reply.error = "too_large"
        except aiohttp.ClientConnectorError:
            reply.error = "connect"
        except (aiohttp.ClientError, OSError):
            reply.error = "cut" if reply.status else "connect"
        except ValueError:
            reply.error = "protocol"
        reply.ended_at = reply.ended_at or self._clock()
        return reply

    async def _exchange(self, body: bytes, headers: Mapping[str, str], reply: Reply) -> None:
        if self._session is None:
            raise RuntimeError("HttpTransport is used as `async with`")
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            reply.status = response.status
            if response.status == 200 and response.content_type == "text/event-stream":
                await self._stream(response, reply)
            else:
                await self._whole(response, reply)

    async def _stream(self, response: aiohttp.ClientResponse, reply: Reply) -> None:
        events = EventReader()
        async for chunk in response.content.iter_any():
            now = self._clock()
            _count(reply, len(chunk))
            for data in events.feed(chunk):
                if data == "[DONE]":
                    reply.ended_at = now
                    break
                _take_event(reply, json.loads(data), now)
            if reply.ended_at:
                break
        _close(reply)
        if reply.ended_at:
            await _read_off(response)

    async def _whole(self, response: aiohttp.ClientResponse, reply: Reply) -> None:
        data = bytearray()
        async for chunk in response.content.iter_any():
            _count(reply, len(chunk))
            data += chunk
        if response.status != 200:
            reply.error = "status"
            return
        message, reply.finish_reason = _choice(json.loads(data), "message")
        reply.answer = _text(message)[:MAX_ANSWER]
        _close(reply)


def _close(reply: Reply) -> None:
    """Judge how the answer ended; one without a finish reason is an error, however politely it ends."""
    if reply.finish_reason in _BROKEN_OFF:
        reply.error = reply.error or "stream"
    reply.complete = bool(reply.finish_reason) and not reply.error
    if not reply.complete:
        reply.error = reply.error or "cut"


async def _read_off(response: aiohttp.ClientResponse) -> None:
    """Read the end of a stream that has said all, so that its connection can be used again; a late end costs that."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            async for _ in response.content.iter_any():
                pass
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()


def _count(reply: Reply, size: int) -> None:
    reply.response_bytes += size
    if reply.response_bytes > MAX_RESPONSE_BYTES:
        raise TooLarge(f"a response of over {MAX_RESPONSE_BYTES} bytes")


def _take_event(reply: Reply, event: Any, now: float) -> None:
    if isinstance(event, dict) and "error" in event:
        reply.error = "stream"
        return
    if isinstance(event, dict) and not event.get("choices", True):
        return  # [] or null: the usage event some engines end with
    delta, reason = _choice(event, "delta")
    reply.content(_text(delta), now)
    reply.finish_reason = reason or reply.finish_reason


def _choice(found: Any, part: str) -> tuple[Any, str]:
    """(message or delta, finish reason) of the first choice. Raises ValueError when it is no chat completion."""
    try:
        choice = found["choices"][0]
        reason = choice.get("finish_reason")
        return choice.get(part), reason[:40] if isinstance(reason, str) else ""
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError("not a chat completion") from None


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""
