"""What the proxy adds to a request, against the direct case and a minimal starlette + httpx reverse proxy.

``python -m benchmarks.proxy_bench [--rounds N] [--requests N]`` starts an upstream of fixed answers and both proxies as
processes, asks each over one keep-alive connection, in turn, in batches, and prints latency (median, p99), what is
added to the direct case, and the CPU time of the proxy's process by psutil. A peer that is not installed is named.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

from chaos_mm.control.client import ControlClient
from chaos_mm.core.canary import canary_id, canary_key

EVENTS = 50
LEASE = {
    "owner": "rbench",
    "fault": "image_noise",
    "params": {"sigma": 0.05},
    "blast_radius": {"rate": 1.0, "selector": "live"},
    "ttl_seconds": 600,
    "keepalive_seconds": 600,
}


class NotStarted(Exception):
    """A process of this benchmark ended before it was ready; what it said is on stderr."""


@dataclass
class Contender:
    """One way to the upstream."""

    name: str
    port: int
    process: psutil.Process | None = None
    sock: socket.socket = field(init=False)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def batch(self, request: bytes, end: bytes, count: int) -> None:
        """Ask ``count`` times one after the other."""
        before = self._cpu()
        for _ in range(count):
            start = time.perf_counter()
            self.sock.sendall(request)
            tail = b""
            while not tail.endswith(end):
                tail = tail[-len(end) :] + self.sock.recv(1 << 20)
            self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds += self._cpu() - before

    def reset(self) -> None:
        self.seconds, self.cpu_seconds = [], 0.0

    def _cpu(self) -> float:
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass
class Case:
    """A kind of request; its answer ends with ``end``. ``lease`` puts the noise on, at our proxy alone."""

    title: str
    request: bytes
    end: bytes
    lease: bool = False
    share: int = 1


def main(argv: list[str] | None = None) -> int:
    """Run every case and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=100)
    options = parser.parse_args(argv)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        upstream = stack.enter_context(_child("upstream"))["port"]
        contenders, control = _contenders(stack, upstream, Path(folder))
        print(f"proxy: {options.rounds} rounds of {options.requests} requests on one connection each, interleaved")
        print(f"{'':44}{'median ms':>10}{'p99 ms':>9}{'added ms':>10}{'of peer':>9}{'CPU ms':>9}")
        for case in _cases((Path(folder) / "token").read_text().strip()):
            _run(case, contenders, control, options.rounds, options.requests // case.share)
        for contender in contenders:
            contender.sock.close()
    return 0


def _run(case: Case, contenders: list[Contender], control: ControlClient, rounds: int, count: int) -> None:
    if case.lease:
        control.put_lease("bench", LEASE)
    for contender in contenders:
        contender.batch(case.request, case.end, 5)
        contender.reset()
    for _ in range(rounds):
        for contender in contenders:
            contender.batch(case.request, case.end, count)
    if case.lease:
        lease = control.release("bench", "rbench")["lease"]
        assert lease["applied"] == rounds * count + 5, lease
    _report(case, contenders)


def _report(case: Case, contenders: list[Contender]) -> None:
    print(case.title)
    direct = float(np.median(contenders[0].seconds)) * 1e3
    added = {c.name: float(np.median(c.seconds)) * 1e3 - direct for c in contenders}
    for contender in contenders:
        ms = np.asarray(contender.seconds) * 1e3
        name = contender.name + (", unchanged" if case.lease and not contender.name.startswith("chaos") else "")
        row = f"  {name:42}{np.median(ms):10.3f}{np.quantile(ms, 0.99):9.3f}"
        if contender.process is not None:
            peer = added.get("starlette + httpx", 0.0)
            share = f"{added[contender.name] / peer:9.2f}" if peer else f"{'-':>9}"
            row += f"{added[contender.name]:10.3f}{share}{contender.cpu_seconds * 1e3 / len(ms):9.3f}"
        print(row)


def _cases(token: str) -> list[Case]:
    photo, small = _chat(1024, "JPEG", quality=90), _chat(192, "PNG")
    done, canary = b"}", f"X-Request-Id: {canary_id(canary_key(token), 'rbench', 1)}\r\n"
    return [
        Case("GET /v1/models", b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", done),
        Case("chat with a 1024 x 1024 JPEG, no lease", _post("/v1/chat/completions", photo), done),
        Case(f"chat, {EVENTS} events streamed, no lease", _post("/stream", b"{}"), b"0\r\n\r\n", share=4),
        Case("chat with a 192 x 192 PNG, image_noise", _post("/v1/chat/completions", small), done, lease=True),
        Case("the same of a canary", _post("/v1/chat/completions", small, canary), done, lease=True),
        Case("chat with a 1024 x 1024 JPEG, image_noise", _post("/v1/chat/completions", photo), done, True, share=4),
    ]


def _chat(size: int, kind: str, **options: Any) -> bytes:
    """A picture with the spectrum of a photograph: noise smoothed at several scales."""
    rng, pixels = np.random.default_rng(1), np.zeros((size, size, 3))
    for step in (4, 16, 64):
        small = rng.normal(0, 30, (size // step + 1, size // step + 1, 3))
        big = Image.fromarray(np.clip(small + 128, 0, 255).astype(np.uint8)).resize(
            (size, size), Image.Resampling.BICUBIC
        )
        pixels += np.asarray(big) - 128.0
    buffer = io.BytesIO()
    Image.fromarray(np.clip(pixels + 128, 0, 255).astype(np.uint8)).save(buffer, kind, **options)
    url = f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()


def _post(path: str, body: bytes, line: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{line}\r\n".encode() + body


def _contenders(stack: ExitStack, upstream: int, folder: Path) -> tuple[list[Contender], ControlClient]:
    found = [Contender("direct", upstream)]
    options = (
        "--port",
        "0",
        "--control-port",
        "0",
        "--allow-live",
        "--max-rate",
        "1",
        "--token-file",
        folder / "token",
    )
    url = f"http://127.0.0.1:{upstream}"
    ours = stack.enter_context(_process("-m", "chaos_mm.cli", "proxy", "--upstream", url, *map(str, options)))
    found.append(Contender("chaos-mm proxy", int(ours["url"].rsplit(":", 1)[1]), psutil.Process(ours["pid"])))
    try:
        peer = stack.enter_context(_child("peer", url))
        found.append(Contender("starlette + httpx", peer["port"], psutil.Process(peer["pid"])))
    except NotStarted:
        print("starlette, httpx or uvicorn is not installed: no peer")
    return found, ControlClient(ours["control_url"], token_file=folder / "token")


@contextmanager
def _process(*arguments: str) -> Iterator[dict[str, Any]]:
    """Run Python with these arguments; the ready line it prints. Raises NotStarted when it prints none."""
    with subprocess.Popen((sys.executable, *arguments), stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise NotStarted
            yield json.loads(line)
        finally:
            process.terminate()


def _child(*arguments: str) -> Any:
    return _process("-m", "benchmarks.proxy_bench", *arguments)


def _ready(port: int) -> None:
    print(json.dumps({"port": port, "pid": os.getpid()}), flush=True)


async def _upstream() -> None:
    """Fixed answers, as fast as asyncio goes."""
    body = json.dumps({"choices": [{"message": {"content": "x" * 200}}]}).encode()
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    event = b"data: " + json.dumps({"choices": [{"delta": {"content": "token"}}]}).encode() + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _read(reader):
            if request.startswith(b"POST /stream"):
                writer.write(head)
                for _ in range(EVENTS):
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(plain)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    _ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """One request's head, its body read; nothing at the end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    await reader.readexactly(length)
    return head


def _peer(url: str) -> None:
    """A reverse proxy as one writes it with starlette and httpx: everything streams."""
    import httpx
    import uvicorn
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    client = httpx.AsyncClient(base_url=url, timeout=None)

    async def forward(request: Request) -> StreamingResponse:
        body = request.stream() if "content-length" in request.headers else None
        outgoing = client.build_request(request.method, request.url.path, headers=request.headers.raw, content=body)
        answer = await client.send(outgoing, stream=True)
        headers = {k: v for k, v in answer.headers.items() if k != "transfer-encoding"}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, headers, background=BackgroundTask(answer.aclose)
        )

    app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])])
    # asyncio turns Nagle's algorithm off only where the protocol is named; without this the peer waits 40 ms a time.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    _ready(sock.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([sock])


PARTS: dict[str, Callable[..., Any]] = {"upstream": lambda: asyncio.run(_upstream()), "peer": _peer}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
