"""Without a lease, and with one at rate 0, the proxy is a wire: not one byte differs from the direct case.

Stronger than asked: hop-by-hop fields are compared too, since client and upstream connections are paired one to one.
"""

import asyncio

import pytest

from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.traffic import answer_for, mixed
from tests.proxy.wires import Answer, Client, RecordingUpstream

COUNT = 1040
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def asked(url: str, requests: list[tuple[bytes, ...]]) -> list[bytes]:
    """Every answer, over one connection as long as it is kept alive."""
    answers: list[bytes] = []
    client = await Client.to(url)
    for pieces in requests:
        answer = await client.ask(*pieces)
        answers.append(answer)
        if b"Connection: close" in answer or b"HTTP/1.0 200" in answer:
            await client.close()
            client = await Client.to(url)
    await client.close()
    return answers


@pytest.mark.parametrize("lease", ["none", "rate 0", "canary only"])
async def test_a_thousand_mixed_requests_are_byte_for_byte_those_of_the_direct_case(
    start_proxy: StartProxy, lease: str
) -> None:
    async with RecordingUpstream(answer_for).running() as upstream, start_proxy(upstream.url) as proxy:
        if lease != "none":
            radius = {"rate": 0.0, "selector": "live"} if lease == "rate 0" else {"selector": "canary"}
            proxy.inject(blast_radius=radius)
        requests = [one.pieces for one in mixed(upstream.authority, COUNT, seed=20)]
        direct = await asked(upstream.url, requests)
        seen_direct = [message.raw for message in upstream.received]
        upstream.received.clear()
        through = await asked(proxy.url, requests)
        seen_through = [message.raw for message in upstream.received]
        assert len(direct) == len(seen_direct) == COUNT
        assert [i for i in range(COUNT) if direct[i] != through[i]] == []
        assert [i for i in range(COUNT) if seen_direct[i] != seen_through[i]] == []
        if lease == "rate 0":
            assert proxy.evidence()["matched"] > 50
            assert proxy.evidence()["applied"] == 0


async def test_host_becomes_the_upstreams_own_name_where_it_stood(start_proxy: StartProxy, connect: Connect) -> None:
    async with RecordingUpstream(answer_for).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        await client.ask(b"GET / HTTP/1.1\r\nA: 1\r\nhOST: proxy.example:1\r\nB: 2\r\n\r\n")
        assert upstream.received[0].raw == (
            b"GET / HTTP/1.1\r\nA: 1\r\nhOST: %s\r\nB: 2\r\n\r\n" % upstream.authority.encode()
        )
        await client.close()


async def test_preserve_host_passes_the_clients(start_proxy: StartProxy, connect: Connect) -> None:
    async with (
        RecordingUpstream(answer_for).running() as upstream,
        start_proxy(upstream.url, preserve_host=True) as proxy,
    ):
        client = await connect(proxy.url)
        await client.ask(b"GET / HTTP/1.1\r\nHost: proxy.example:1\r\n\r\n")
        assert upstream.received[0].header("host") == "proxy.example:1"
        await client.close()


async def test_pipelined_requests_are_answered_in_order(start_proxy: StartProxy, connect: Connect) -> None:
    async with RecordingUpstream(lambda _: Answer([ANSWER])).running() as upstream, start_proxy(upstream.url) as proxy:
        client = await connect(proxy.url)
        one = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
        client.writer.write(b"".join(one % n for n in range(5)))
        assert await client.reader.readexactly(5 * len(ANSWER)) == 5 * ANSWER
        assert [message.head.target for message in upstream.received] == [b"/%d" % n for n in range(5)]
        await client.close()


async def test_clients_do_not_share_upstream_connections(start_proxy: StartProxy, connect: Connect) -> None:
    async with RecordingUpstream(answer_for).running() as upstream, start_proxy(upstream.url) as proxy:
        clients = [await connect(proxy.url) for _ in range(4)]
        one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(3):
            await asyncio.gather(*(client.ask(one) for client in clients))
        assert upstream.connections == 4
        for client in clients:
            await client.close()
