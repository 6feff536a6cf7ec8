"""A model server started through ``chaos-mm agent run``, as a process, and what asks it and its agent."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np
from PIL import Image

from chaos_mm.control.token import load_or_create_token
from chaos_mm.core.canary import canary_id, canary_key
from tests.ports import free_ports

OWNER = "r1"
PROGRAM = str(Path(sys.executable).with_name("chaos-mm"))


def picture(seed: int) -> str:
    """A data URI of random pixels, 96 x 64."""
    made = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (64, 96, 3), dtype=np.uint8)).save(made, "PNG")
    return "data:image/png;base64," + base64.b64encode(made.getvalue()).decode()


@dataclass
class Server:
    """``url`` of the model server, ``control`` of its agent, ``model``: the name to ask for."""

    process: "subprocess.Popen[str]"
    url: str
    control: str
    model: str
    token: str
    log: Path

    def canary(self, number: int) -> str:
        return canary_id(canary_key(self.token), OWNER, number)

    def ask(
        self, request: str, seed: int | None = None, tokens: int = 24, text: str = "what number is shown", **more: Any
    ) -> httpx.Response:
        """One chat, with a picture or without."""
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if seed is not None:
            content.insert(0, {"type": "image_url", "image_url": {"url": picture(seed)}})
        body = {"model": self.model, "messages": [{"role": "user", "content": content}], "max_tokens": tokens, **more}
        headers = {"X-Request-ID": request}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def text(self, request: str, seed: int | None = None, tokens: int = 24) -> str:
        """The answer; it must be there."""
        answer = self.ask(request, seed, tokens)
        assert answer.status_code == 200, answer.text
        found: str = answer.json()["choices"][0]["message"]["content"]
        return found

    def agent(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """A call of the control API."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(method, self.control + path, json=body, headers=headers, timeout=10)

    def put(self, fault: str, selector: str = "canary", **params: Any) -> None:
        """A lease, as soon as its seam is proven; struck from the next request on."""
        radius = {"selector": selector}
        body = {"owner": OWNER, "fault": fault, "params": params, "ttl_seconds": 60, "blast_radius": radius}
        for _ in range(100):
            answer = self.agent("PUT", "/leases/lease", body)
            if "being proven" not in answer.text:
                break
            time.sleep(0.1)
        assert answer.status_code < 300, answer.text

    def lease(self) -> dict[str, Any]:
        found: dict[str, Any] = self.agent("GET", "/leases/lease").json()
        return found.get("lease", found)

    def release(self) -> dict[str, Any]:
        """End it; the lease when nothing is left to undo."""
        assert self.agent("DELETE", f"/leases/lease?owner={OWNER}").status_code == 200
        for _ in range(200):
            found = self.lease()
            if found["state"] == "ended":
                return found
            time.sleep(0.05)
        raise AssertionError(f"still being undone: {found}")

    def evidence(self) -> dict[str, Any]:
        found: dict[str, Any] = self.agent("GET", "/agent").json()
        return found


@contextmanager
def serving(
    folder: Path, words: Sequence[str], model: str, *, health: str = "/health", stdin: IO[str] | int | None = None
) -> Iterator[Server]:
    """Run ``words`` through the launcher, ``{port}`` replaced, and wait until the server answers."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    token, port = load_or_create_token(state / "token"), free_ports(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")} | {
        "CHAOS_MM_STATE_DIR": str(state),
        "CHAOS_MM_TOKEN_FILE": str(state / "token"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    control = f"http://127.0.0.1:{port + 1}"
    argv = [PROGRAM, "agent", "run", "--control-url", control, "--allow-live", "--max-rate", "1", "--"]
    argv += [word.replace("{port}", str(port)) for word in words]
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            argv, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=stream, text=True, cwd=folder
        )
    server = Server(process, f"http://127.0.0.1:{port}", control, model, token, log)
    try:
        if stdin is None:
            wait_for(server, health)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        for stream in (process.stdout, process.stdin):
            if stream is not None:
                stream.close()


def wait_for(server: Server, health: str = "/health", seconds: float = 150.0) -> None:
    """Until it answers 200."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert server.process.poll() is None, server.log.read_text()[-3000:]
        try:
            if httpx.get(server.url + health, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"no answer in {seconds} s: {server.log.read_text()[-3000:]}")


def ready_line(server: Server) -> dict[str, Any]:
    """The line on stderr that names the control address."""
    for line in server.log.read_text().splitlines():
        if line.startswith('{"ready": "agent"'):
            found: dict[str, Any] = json.loads(line)
            return found
    raise AssertionError(server.log.read_text()[-2000:])
