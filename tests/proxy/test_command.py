"""The command: one ready line, leases over its control API, clear words for what cannot be, a clean end."""

import asyncio
import json
import signal
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos_mm.control.client import ControlClient
from chaos_mm.control.point import PointSettings
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.proxy.command import ProxySettings, command, run
from tests.processes import start
from tests.proxy.conftest import OWNER, Connect, until
from tests.proxy.traffic import chat, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LEASE = {
    "owner": OWNER,
    "fault": "image_noise",
    "params": {"sigma": 0.2},
    "blast_radius": {"rate": 1.0, "selector": "live"},
    "ttl_seconds": 600,
    "keepalive_seconds": 10,
    "seed": 1,
}


def control(tmp_path: Path) -> PointSettings:
    return PointSettings("http://127.0.0.1:0", token_file=tmp_path / "token", allow_live=True, max_rate=1.0)


async def test_it_says_when_it_is_ready_and_ends_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(run(ProxySettings("http://127.0.0.1:1", port=0), control(tmp_path), stop))
    line = ""
    async with asyncio.timeout(10):
        while not line:
            await asyncio.sleep(0.01)
            line = capsys.readouterr().out
    ready = json.loads(line)
    assert ready["ready"] == "proxy"
    client = ControlClient(ready["control_url"], token_file=tmp_path / "token")
    health = await asyncio.to_thread(client.health)
    assert (health["point"], health["armed"]) == ("proxy", False)
    assert {fault["target"] for fault in await asyncio.to_thread(client.faults)} >= {"image", "audio", "text"}
    stop.set()
    await asyncio.wait_for(task, 3.0)


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream:
        settings = ProxySettings(upstream.url, port=upstream.port)
        with pytest.raises(ChaosMMError, match=f"port 127.0.0.1:{upstream.port} cannot be used"):
            await run(settings, control(tmp_path), asyncio.Event())


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8600", "ftp://a", "http://", "http://a/v1", "http://a?x", "http://user@a", "http://a:99999"]
)
def test_an_upstream_must_be_a_plain_url(url: str, tmp_path: Path) -> None:
    argv = ["--upstream", url, "--port", "0", "--control-port", "0", "--token-file", str(tmp_path / "token")]
    result = CliRunner().invoke(command, argv)
    assert result.exit_code == 1
    assert "upstream" in result.output
    assert "http://host:port" in result.output or "scheme, host and port alone" in result.output


async def test_release_over_http_and_the_next_answer_is_clean(tmp_path: Path, connect: Connect) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream:
        arguments = (
            "--upstream",
            upstream.url,
            "--port",
            "0",
            "--control-port",
            "0",
            "--allow-live",
            "--max-rate",
            "1",
        )
        proxy = await asyncio.to_thread(start, "proxy", *arguments, state=tmp_path)
        try:
            point = ControlClient(proxy.control_url, token_file=tmp_path / "token")
            client = await connect(proxy.url)
            request = post(upstream.authority, chat(image_part(picture())))
            await client.ask(request)
            await asyncio.to_thread(point.put_lease, "noise", LEASE)
            await client.ask(request)
            started = time.monotonic()
            await asyncio.to_thread(point.release, "noise", OWNER)
            await client.ask(request)
            assert time.monotonic() - started < 0.5
            assert [message.raw == request for message in upstream.received] == [True, False, True]
            lease = await asyncio.to_thread(point.lease, "noise")
            assert (lease["ended_by"], lease["applied"]) == ("release", 1)
            wanted = 'chaos_mm_proxy_requests_total{outcome="2xx",path_class="chat_completions"} 3.0'
            await until(lambda: wanted in point.text("/metrics"))  # counted just after the answer has left
            assert "chaos_mm_leases_live 0" in point.text("/metrics")
            proxy.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(proxy.process.wait, 3.0) == 0
        finally:
            await asyncio.to_thread(proxy.stop)


async def test_requests_that_start_after_a_release_are_clean_while_others_are_in_flight(
    tmp_path: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream:
        stop = asyncio.Event()
        settings = ProxySettings(upstream.url, port=0)
        task = asyncio.create_task(run(settings, control(tmp_path), stop))
        line = ""
        while not line:
            await asyncio.sleep(0.01)
            line = capsys.readouterr().out
        ready = json.loads(line)
        point = ControlClient(ready["control_url"], token_file=tmp_path / "token")
        await asyncio.to_thread(point.put_lease, "noise", LEASE)
        released = threading.Event()
        late: list[int] = []

        async def ask(worker: int) -> None:
            client = await connect(ready["url"])
            for n in range(15):
                number = worker * 100 + n
                if released.is_set():
                    late.append(number)
                await client.ask(post(upstream.authority, BODY, f"x-request-id: {number}"))

        async def release() -> None:
            while len(upstream.received) < 30:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.to_thread(point.release, "noise", OWNER)
            released.set()

        await asyncio.gather(release(), *(ask(worker) for worker in range(8)))
        stop.set()
        await task
        changed = {int(m.header("x-request-id")) for m in upstream.received if m.body != BODY}
        assert changed
        assert late
        assert changed.isdisjoint(late)


BODY = chat(image_part(picture("PNG", 200)))
