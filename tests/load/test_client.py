"""One request against a service that behaves, and one that does not in each way."""

import asyncio
import socket
import time

import pytest

from chaos_mm.load.client import KEEPALIVE_SECONDS, HttpTransport, Reply, Service
from tests.load.fake_openai import FakeOpenAI

CONTENT = [{"type": "text", "text": "repeat the code 4 0 7 2"}]


async def ask(fake: FakeOpenAI, seconds: float = 5.0, **service: object) -> Reply:
    chosen = Service(fake.url, "chaos-mm-tiny", **service)  # type: ignore[arg-type]
    async with HttpTransport(chosen) as transport:
        headers = {"x-request-id": "one"}
        return await transport.send(chosen.body(CONTENT), headers, time.monotonic() + seconds)


async def test_a_streamed_answer_is_timed(fake: FakeOpenAI) -> None:
    fake.gap_seconds = 0.03
    began = time.monotonic()
    reply = await ask(fake)
    assert (reply.answer, reply.status, reply.finish_reason, reply.complete, reply.error) == (
        "4072",
        200,
        "stop",
        True,
        "",
    )
    assert reply.chunks == 4
    assert reply.sent_at is not None
    assert reply.first_token_at is not None
    assert reply.last_token_at is not None
    assert began <= reply.sent_at <= reply.first_token_at - 0.025
    # Three gaps of 0.03 s lie between four pieces.
    assert reply.last_token_at - reply.first_token_at >= 0.08
    assert reply.max_gap_seconds is not None
    assert reply.max_gap_seconds >= 0.025
    assert reply.ended_at >= reply.last_token_at


async def test_a_whole_answer(fake: FakeOpenAI) -> None:
    reply = await ask(fake, stream=False)
    assert (reply.answer, reply.complete, reply.error, reply.first_token_at, reply.chunks) == (
        "4072",
        True,
        "",
        None,
        0,
    )


@pytest.mark.parametrize(
    ("mode", "error", "status"),
    [
        ("status", "status", 500),
        ("redirect", "status", 307),
        ("cut", "cut", 200),
        ("no_finish", "cut", 200),
        ("error_event", "stream", 200),
        ("garbage", "protocol", 200),
        ("html", "protocol", 200),
        ("abort", "stream", 200),
        ("error", "stream", 200),
    ],
)
async def test_misbehaviour_has_a_word(fake: FakeOpenAI, mode: str, error: str, status: int) -> None:
    fake.mode = mode
    reply = await ask(fake)
    assert (reply.error, reply.status, reply.complete) == (error, status, False)


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_a_whole_answer_that_was_broken_off_is_an_error(fake: FakeOpenAI, reason: str) -> None:
    fake.mode = reason
    reply = await ask(fake, stream=False)
    assert (reply.error, reply.complete, reply.finish_reason) == ("stream", False, reason)


async def test_a_usage_event_without_choices_is_passed_over(fake: FakeOpenAI) -> None:
    fake.mode = "null_choices"
    reply = await ask(fake)
    assert (reply.answer, reply.error, reply.complete) == ("4072", "", True)


async def test_an_answer_ends_with_done_though_the_service_holds_the_connection(fake: FakeOpenAI) -> None:
    fake.mode = "hold"
    began = time.monotonic()
    reply = await ask(fake, seconds=20.0)
    assert (reply.answer, reply.error, reply.complete) == ("4072", "", True)
    assert time.monotonic() - began < 5.0
    assert reply.sent_at is not None
    assert reply.ended_at <= time.monotonic() - 0.1  # the wait for the end is not part of the answer's time


async def test_a_deadline_after_done_changes_nothing(fake: FakeOpenAI) -> None:
    fake.mode = "hold"
    chosen = Service(fake.url, "chaos-mm-tiny")
    async with HttpTransport(chosen) as transport:
        await transport.send(chosen.body(CONTENT), {}, time.monotonic() + 5)  # warm
        reply = await transport.send(chosen.body(CONTENT), {}, time.monotonic() + 0.15)
    assert (reply.answer, reply.error, reply.complete) == ("4072", "", True)


async def test_connections_are_used_again_while_they_are_young(fake: FakeOpenAI) -> None:
    chosen = Service(fake.url, "chaos-mm-tiny")

    async def peers(keepalive: float, pause: float) -> int:
        fake.peers.clear()
        async with HttpTransport(chosen, keepalive_seconds=keepalive) as transport:
            for _ in range(3):
                await transport.send(chosen.body(CONTENT), {}, time.monotonic() + 5)
                await asyncio.sleep(pause)
        return len(set(fake.peers))

    assert await peers(KEEPALIVE_SECONDS, 0.0) == 1
    assert await peers(0.02, 0.1) == 3
    assert KEEPALIVE_SECONDS < 5.0  # uvicorn closes idle connections then, and a request that meets that is lost


async def test_a_hang_ends_at_the_deadline(fake: FakeOpenAI) -> None:
    fake.mode = "hang"
    began = time.monotonic()
    reply = await ask(fake, seconds=0.2)
    assert (reply.error, reply.status) == ("timeout", 0)
    assert 0.15 <= time.monotonic() - began < 2.0


async def test_a_stream_that_is_too_slow_keeps_what_it_got(fake: FakeOpenAI) -> None:
    fake.gap_seconds = 0.15
    reply = await ask(fake, seconds=0.4)
    assert (reply.error, reply.complete) == ("timeout", False)
    assert "4072".startswith(reply.answer)
    assert 1 <= reply.chunks <= 3


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        service = Service(f"http://127.0.0.1:{taken.getsockname()[1]}", "m")
        reply = await ask_at(service)
    assert (reply.error, reply.status) == ("connect", 0)


async def ask_at(service: Service) -> Reply:
    async with HttpTransport(service) as transport:
        return await transport.send(service.body(CONTENT), {}, time.monotonic() + 5)


async def test_an_endless_answer_is_bounded(fake: FakeOpenAI) -> None:
    fake.answer = lambda request_id, body: "9" * (5 << 20)
    reply = await ask(fake, seconds=20, stream=False)
    assert reply.error == "too_large"
    assert reply.answer == ""


async def test_what_goes_out(fake: FakeOpenAI) -> None:
    await ask(fake, api_key="sk-secret")
    body, headers = fake.seen[0][1], fake.headers[0]
    assert body == {
        "model": "chaos-mm-tiny",
        "messages": [{"role": "user", "content": CONTENT}],
        "temperature": 0,
        "max_tokens": 24,
        "stream": True,
    }
    assert headers["x-request-id"] == "one"
    assert headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(Service(fake.url, "m", api_key="sk-secret"))
