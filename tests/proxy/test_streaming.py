"""Bodies stream: each piece at once, in bounded memory whoever is slow, and upgraded connections become a tunnel."""

import asyncio
import hashlib
import resource
from contextlib import suppress

from tests.proxy.conftest import Connect, Serve, StartProxy
from tests.proxy.wires import Answer, RecordingUpstream

MIB = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_each_event_passes_before_the_next_is_made(
    start_proxy: StartProxy, connect: Connect, serve: Serve
) -> None:
    go = asyncio.Semaphore(0)

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for n in range(5):
            await go.acquire()
            writer.write(b"9\r\ndata: %d\n\n\r\n" % n)
        writer.write(b"0\r\n\r\n")
        writer.close()

    upstream = await serve(events)
    async with start_proxy(upstream) as proxy:
        client = await connect(proxy.url)
        client.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == HEAD
        for n in range(5):
            go.release()
            assert await asyncio.wait_for(client.reader.readexactly(14), 2.0) == b"9\r\ndata: %d\n\n\r\n" % n


class Flood:
    """An upstream that writes as fast as it is let, and counts."""

    def __init__(self, total: int) -> None:
        self.total, self.written, self.digest = total, 0, hashlib.sha256()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.total)
        block = bytes(range(256)) * 256
        try:
            while self.written < self.total:
                writer.write(block)
                await writer.drain()
                self.written += len(block)
                self.digest.update(block)
        except ConnectionError:
            pass
        writer.close()


async def test_a_slow_reader_stops_the_upstream_and_memory_stays_bounded(start_proxy: StartProxy, serve: Serve) -> None:
    flood = Flood(200 * MIB)
    upstream = await serve(flood.serve)
    async with start_proxy(upstream) as proxy:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, writer = await asyncio.open_connection(*proxy.url[7:].split(":"), limit=MIB)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        stalled = -1
        while stalled != flood.written:  # nobody reads: wait until nothing moves
            stalled = flood.written
            await asyncio.sleep(0.2)
        assert flood.written < 32 * MIB  # kernel buffers of three sockets, and a few hundred kB of ours
        seen, digest = 0, hashlib.sha256()
        while data := await reader.read(MIB):
            seen += len(data)
            digest.update(data)
        assert (seen, digest.digest()) == (flood.total, flood.digest.digest())
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024  # kB
        writer.close()


async def test_a_slow_upstream_stops_the_client(start_proxy: StartProxy, connect: Connect, serve: Serve) -> None:
    release = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await release.wait()
        left = 64 * MIB
        while left:
            left -= len(await reader.read(MIB))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    upstream = await serve(slow)
    async with start_proxy(upstream) as proxy:
        client = await connect(proxy.url)
        client.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        sent, block = 0, bytes(65536)
        with suppress(TimeoutError):
            while sent < 32 * MIB:
                client.writer.write(block)
                sent += len(block)
                async with asyncio.timeout(0.5):
                    await client.writer.drain()
        assert sent < 32 * MIB
        release.set()
        for _ in range((64 * MIB - sent) // len(block)):
            client.writer.write(block)
            await client.writer.drain()
        assert (await client.reader.read()).startswith(b"HTTP/1.1 200 OK")


async def test_an_upgraded_connection_is_a_tunnel(start_proxy: StartProxy, connect: Connect, serve: Serve) -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: websocket" in head
        writer.write(switch + b"hello")
        while data := await reader.read(100):
            writer.write(data[::-1])
        writer.close()

    upstream = await serve(echo)
    async with start_proxy(upstream) as proxy:
        client = await connect(proxy.url)
        client.writer.write(
            b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert await client.reader.readexactly(len(switch) + 5) == switch + b"hello"
        client.writer.write(b"\x81\x05abc")
        assert await client.reader.readexactly(5) == b"cba\x05\x81"
        client.writer.write_eof()
        assert await asyncio.wait_for(client.reader.read(), 2.0) == b""


async def test_many_requests_at_once(start_proxy: StartProxy, connect: Connect) -> None:
    upstream = RecordingUpstream(
        lambda m: Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + m.head.target[-4:]])
    )
    async with upstream.running(), start_proxy(upstream.url) as proxy:

        async def one(n: int) -> None:
            client = await connect(proxy.url)
            for turn in range(5):
                target = b"/%04d" % (n * 5 + turn)
                answer = await client.ask(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)
                assert answer.endswith(target[1:])
            await client.close()

        await asyncio.gather(*(one(n) for n in range(64)))
        assert proxy.count("requests_total", path_class="other", outcome="2xx") == 320
