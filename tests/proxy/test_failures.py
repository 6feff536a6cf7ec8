"""When one side fails, the other learns it at once and in kind, and nothing is left open or made to look complete."""

import asyncio
import json

import pytest

from tests.proxy.conftest import Connect, Serve, StartProxy, until
from tests.proxy.traffic import chat, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream, split

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"
OPEN_ENDED = b"HTTP/1.1 200 OK\r\n\r\nhalf"
SSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n"


async def test_a_client_that_leaves_mid_answer_ends_the_upstream_request(
    start_proxy: StartProxy, connect: Connect, serve: Serve
) -> None:
    gone = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SSE)
        await reader.read()
        gone.set()
        writer.close()

    upstream = await serve(stream)
    async with start_proxy(upstream) as proxy:
        client = await connect(proxy.url)
        client.writer.write(GET)
        assert await client.reader.readuntil(b"data: 1\r\n") == SSE
        client.abort()
        await asyncio.wait_for(gone.wait(), 1.0)
        await until(lambda: proxy.count("requests_total", path_class="other", outcome="client_gone") == 1)


@pytest.mark.parametrize("count", [3, 3000])
async def test_empty_lines_are_ignored_up_to_a_bound(start_proxy: StartProxy, connect: Connect, count: int) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(b"\r\n" * count + GET)
        answer = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 2.0)
        assert answer.startswith(b"HTTP/1.1 200" if count == 3 else b"HTTP/1.1 400")


async def test_a_client_that_leaves_while_waiting_ends_the_upstream_request(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with RecordingUpstream(lambda _: Answer([])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(GET)
        await until(lambda: upstream.received)
        client.writer.close()
        await asyncio.wait_for(upstream.gone.wait(), 1.0)


@pytest.mark.parametrize(
    ("answer", "reset"), [(SSE, False), (SSE, True), (SHORT, False), (SHORT, True), (OPEN_ENDED, True)]
)
async def test_a_truncated_answer_does_not_look_complete(
    start_proxy: StartProxy, connect: Connect, answer: bytes, reset: bool
) -> None:
    upstream = RecordingUpstream(lambda _: Answer([answer], close=True, reset=reset))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(GET)
        if reset:
            assert await client.until_reset()
        else:
            assert await client.reader.read() == answer
        await until(lambda: proxy.count("upstream_errors_total", kind="truncated") == 1)


async def test_an_upstream_that_closes_without_a_word_closes_the_client(
    start_proxy: StartProxy, connect: Connect
) -> None:
    upstream = RecordingUpstream(lambda _: Answer([], close=True))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(GET)
        assert await client.reader.read() == b""
        assert proxy.count("upstream_errors_total", kind="closed") == 1


@pytest.mark.parametrize("answer", [OK, b"HTTP/1.1 204 No Content\r\n\r\n"])
async def test_an_idle_upstream_close_reaches_the_idle_client(
    start_proxy: StartProxy, connect: Connect, answer: bytes
) -> None:
    upstream = RecordingUpstream(lambda _: Answer([answer], close=True))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        for _ in range(20):  # the close may come before or after the answer has left
            client = await connect(proxy.url)
            assert await client.ask(GET) == answer
            assert await asyncio.wait_for(client.reader.read(), 1.0) == b""


async def test_a_client_that_closes_its_sending_side_is_taken_to_be_gone(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with RecordingUpstream(lambda _: Answer([])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(GET)
        client.writer.write_eof()
        assert await client.reader.read() == b""
        assert proxy.count("requests_total", path_class="other", outcome="client_gone") == 1
        assert proxy.count("in_flight") == 0


async def test_a_refused_upstream_is_a_502_that_names_it(start_proxy: StartProxy, connect: Connect) -> None:
    async with start_proxy("http://127.0.0.1:1") as proxy:
        client = await connect(proxy.url)
        lines, body = split(await client.ask(post("x", chat("hi"))))
        assert lines[0] == b"HTTP/1.1 502 Bad Gateway"
        assert b"x-chaos-mm-proxy-error: upstream_unreachable" in lines
        assert "http://127.0.0.1:1" in json.loads(body)["error"]["message"]
        assert proxy.count("upstream_errors_total", kind="unreachable") == 1


async def test_an_answer_that_is_not_http_is_a_502(start_proxy: StartProxy, connect: Connect) -> None:
    upstream = RecordingUpstream(lambda _: Answer([b"SSH-2.0-x\r\n\r\n"], close=True))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        lines, _ = split(await (await connect(proxy.url)).ask(GET))
        assert b"x-chaos-mm-proxy-error: upstream_malformed" in lines


AMBIGUOUS = {
    "length and chunked": (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    "list of lengths": (b"POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", 400),
    "signed length": (b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", 400),
    "chunked twice": (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 501),
    "unknown coding": (b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
    "chunked in 1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "space before colon": (b"POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\n", 400),
    "folded line": (b"GET / HTTP/1.1\r\nA: 1\r\n b\r\n\r\n", 400),
    "bare newline": (b"GET / HTTP/1.1\r\nA: 1\nContent-Length: 5\r\n\r\n", 400),
    "null": (b"GET / HTTP/1.1\r\nA: \0\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\n\r\n", 501),
    "huge head": (b"GET / HTTP/1.1\r\nA: " + b"a" * 200_000 + b"\r\n\r\n", 431),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_what_two_servers_could_read_differently_is_refused(
    start_proxy: StartProxy, connect: Connect, name: str
) -> None:
    raw, status = AMBIGUOUS[name]
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(raw)
        answer = await asyncio.wait_for(client.reader.read(), 5.0)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert upstream.received == []


@pytest.mark.parametrize("chunks", [b"zz\r\n", b"-1\r\n", b"0x3\r\n", b"3\r\nabcXY", b"1_0\r\n", b"\r\n"])
async def test_a_broken_chunk_is_refused_and_the_upstream_request_aborted(
    start_proxy: StartProxy, connect: Connect, chunks: bytes
) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        client.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        assert (await asyncio.wait_for(client.reader.read(), 5.0)).startswith(b"HTTP/1.1 400 ")
        assert upstream.received == []


async def test_an_early_answer_reaches_a_client_that_is_still_sending(
    start_proxy: StartProxy, connect: Connect, serve: Serve
) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)
        await writer.drain()
        writer.close()

    upstream = await serve(refuse)
    async with start_proxy(upstream) as proxy:
        client = await connect(proxy.url)
        client.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc")
        assert await asyncio.wait_for(client.reader.read(), 5.0) == refusal


async def test_a_client_that_leaves_while_its_picture_is_decoded_settles_the_plan(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(params={"sigma": 0.1})
        for _ in range(5):
            client = await connect(proxy.url)
            client.writer.write(post("x", chat(image_part(picture("PNG", 1200)))))
            await client.writer.drain()
            client.abort()
        await until(lambda: proxy.count("in_flight") == 0)
        await until(lambda: all(lease.reserved == 0 for lease in proxy.book.live))
        evidence = proxy.release()
        assert evidence["applied"] == len(upstream.received)


async def test_a_stopping_proxy_lets_a_request_end_and_then_cuts(start_proxy: StartProxy, connect: Connect) -> None:
    upstream = RecordingUpstream(lambda _: Answer([]))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        idle = await connect(proxy.url)
        client.writer.write(GET)
        await until(lambda: upstream.received)
    assert await client.until_reset()
    assert await idle.until_reset()
