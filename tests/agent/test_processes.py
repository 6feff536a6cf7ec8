"""Real processes, killed as hard as can be: what is armed ends by itself, and what was changed comes back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.control.client import ControlClient
from chaos_mm.core.errors import NotInjectable
from tests.agent.conftest import TOKEN, body, canary, until

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]
KEEPALIVE = 5.0
LIVE: dict[str, Any] = {"blast_radius": {"selector": "live"}}


@dataclass
class Process:
    """A started module of these tests that answers JSON lines."""

    popen: subprocess.Popen[str]
    ready: dict[str, Any] = field(default_factory=dict)

    def ask(self, **command: Any) -> Any:
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.popen.stdin.write(json.dumps(command) + "\n")
        self.popen.stdin.flush()
        return json.loads(self.popen.stdout.readline())

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(10)

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait(10)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()


@dataclass
class Site:
    """A board, and the processes that share it."""

    folder: Path
    env: dict[str, str]
    board: Board
    started: list[Process] = field(default_factory=list)

    def start(self, module: str, *arguments: str, **env: str) -> Process:
        with (self.folder / f"{module}.log").open("a") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", f"tests.agent.{module}", *arguments],
                cwd=ROOT,
                env={**os.environ, **self.env, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert popen.stdout is not None
        process = Process(popen)
        self.started.append(process)
        line = popen.stdout.readline()
        assert line, (self.folder / f"{module}.log").read_text()[-2000:]
        process.ready = json.loads(line)
        return process

    def client(self, control: Process) -> ControlClient:
        return ControlClient(control.ready["url"], TOKEN)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    token, nonce = tmp_path / "token", new_nonce()
    token.write_text(TOKEN)
    token.chmod(0o600)
    env = {
        "CHAOS_MM_AGENT": "1",
        "CHAOS_MM_AGENT_BOARD": str(tmp_path / "board"),
        "CHAOS_MM_AGENT_NONCE": nonce,
        "CHAOS_MM_TOKEN_FILE": str(token),
        "CHAOS_MM_AGENT_CONTROL_URL": "http://127.0.0.1:0",
        "CHAOS_MM_AGENT_ALLOW_LIVE": "1",
        "CHAOS_MM_AGENT_MAX_RATE": "1",
        "OMP_NUM_THREADS": "1",
    }
    made = Site(tmp_path, env, Board.create(tmp_path / "board", nonce))
    yield made
    for process in made.started:
        process.close()
    made.board.close()


def put(client: ControlClient, fault: str, name: str = "a", **more: Any) -> dict[str, Any]:
    """Arm it once its seam is proven."""
    for _ in range(200):
        try:
            return client.put_lease(name, body(fault, **{"keepalive_seconds": 60, **more}))
        except NotInjectable as error:
            if "just being proven" not in str(error):
                raise
            time.sleep(0.05)
    raise AssertionError("its seam was never proven")


def facts(worker: Process) -> dict[str, Any]:
    found: dict[str, Any] = worker.ask(armed=True)
    return found


def test_a_lease_reaches_a_worker_and_its_harm_comes_back(site: Site):
    worker, control = site.start("worker_process", "worker"), site.start("control_process")
    client = site.client(control)
    lease = put(client, "kv_add", params={"amount": 3.0, "after": 2})
    assert lease["engine"]["engine"]["name"] == "miniature"
    worker.ask(add=canary(1), wanted=6)
    worker.ask(add="somebody", wanted=6)
    until(lambda: client.lease("a")["applied"] == 1)
    until(lambda: worker.ask(report="somebody")["finished"] and worker.ask(report=canary(1))["finished"])
    assert worker.ask(report=canary(1))["answers"][-1] != worker.ask(report="somebody")["answers"][-1]
    client.release("a", "r1")
    until(lambda: client.lease("a")["state"] == "ended")
    evidence = client.lease("a")
    assert evidence["undo"]["proven"] and evidence["undo"]["figures"]["saved_bytes"] > 0
    assert (evidence["matched"], evidence["applied"], evidence["sites"]) == (1, 1, {"layer0": 1})
    worker.ask(add=canary(2), wanted=6)
    until(lambda: worker.ask(report=canary(2))["finished"])
    assert worker.ask(report=canary(2))["answers"] == worker.ask(report="somebody")["answers"]


def test_the_control_process_killed_leaves_nothing_by_keepalive_and_a_second(site: Site):
    worker, control = site.start("worker_process", "worker"), site.start("control_process")
    put(site.client(control), "memory_mark", keepalive_seconds=KEEPALIVE, params={"bytes_left": 99}, **LIVE)
    until(lambda: worker.ask(ceiling=True) == 99)
    control.kill()
    killed = time.monotonic()
    until(lambda: not facts(worker)["armed"], KEEPALIVE + 1)
    until(lambda: worker.ask(ceiling=True) is None, killed + KEEPALIVE + 1 - time.monotonic())
    assert facts(worker)["pending"] == 0


def test_the_parent_killed_leaves_nothing_in_its_orphan(site: Site):
    state = site.folder / "worker.json"
    parent = site.start(
        "parent_process", str(state), CHAOS_MM_AGENT_BOARD="", CHAOS_MM_STATE_DIR=str(site.folder / "state")
    )
    until(state.exists, 60)
    put(site.client(parent), "memory_mark", keepalive_seconds=KEEPALIVE, params={"bytes_left": 99}, **LIVE)
    until(lambda: json.loads(state.read_text())["ceiling"] == 99)
    parent.kill()
    try:
        until(lambda: json.loads(state.read_text())["ceiling"] is None, KEEPALIVE + 1)
        assert not json.loads(state.read_text())["armed"]
    finally:
        os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)


def test_a_time_to_live_ends_it_without_anybody(site: Site):
    worker, control = site.start("worker_process", "worker"), site.start("control_process")
    put(site.client(control), "memory_mark", ttl_seconds=1.0, **LIVE)
    until(lambda: worker.ask(ceiling=True) == 1)
    control.popen.send_signal(signal.SIGSTOP)  # it lives and does nothing
    try:
        until(lambda: worker.ask(ceiling=True) is None, 2.5)
        until(lambda: not facts(worker)["armed"], 1.5)  # a probe of a seam outlives its process by a second
    finally:
        control.popen.send_signal(signal.SIGCONT)


def test_a_worker_killed_is_reported_and_is_no_residue(site: Site):
    worker, control = site.start("worker_process", "worker"), site.start("control_process")
    client = site.client(control)
    put(client, "memory_mark", **LIVE)
    until(lambda: client.lease("a")["applied"] == 1)
    worker.kill()
    until(lambda: client.lease("a")["engine"].get("died") == [worker.popen.pid])
    with pytest.raises(NotInjectable, match="no process of the engine has joined"):
        client.put_lease("b", body("kv_add"))
    client.release("a", "r1")
    until(lambda: client.lease("a")["state"] == "ended")
    undo = client.lease("a")["undo"]
    assert undo["proven"] and undo["reason"] == f"process {worker.popen.pid} died, and what it held with it"
    found = client.get("/agent")
    assert not found["loaded"] and [w["alive"] for w in found["workers"]] == [False]


def test_a_new_worker_takes_part_in_a_live_lease(site: Site):
    first, control = site.start("worker_process", "worker"), site.start("control_process")
    client = site.client(control)
    put(client, "kv_add", blast_radius={"limit": 2})
    first.ask(add=canary(1), wanted=3)
    until(lambda: client.lease("a")["applied"] == 1)
    second = site.start("worker_process", "worker-2")
    first.kill()
    for n in (2, 3):
        second.ask(add=canary(n), wanted=3)
        until(lambda n=n: second.ask(report=canary(n))["finished"])
    until(lambda: client.lease("a")["ended_by"] == "limit")
    assert client.lease("a")["applied"] == 2


def test_a_page_of_another_nonce_is_ignored(site: Site):
    worker = site.start("worker_process", "worker", CHAOS_MM_AGENT_NONCE="0" * 32)
    assert "another nonce" in worker.ready["ready"]
    control = site.start("control_process")
    client = site.client(control)
    with pytest.raises(NotInjectable, match="no process of the engine has joined"):
        client.put_lease("a", body("kv_add"))
    site.board.probe(time.monotonic_ns() + 10**10)
    assert site.board.armed() and not facts(worker)["armed"]


def test_exactly_one_process_serves_and_a_dead_one_is_followed(site: Site):
    site.start("worker_process", "worker")
    first, second = site.start("control_process"), site.start("control_process")
    assert first.ready["url"] and not second.ready["url"]
    assert "another process serves" in (site.folder / "control_process.log").read_text()
    first.kill()
    third = site.start("control_process")
    assert put(site.client(third), "kv_add")["state"] == "live"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"CHAOS_MM_AGENT": ""}, "CHAOS_MM_AGENT is not 1"),
        ({"CHAOS_MM_TOKEN_FILE": "/nowhere/token"}, "no token at /nowhere/token"),
    ],
)
def test_without_leave_or_token_nothing_is_served_and_the_service_goes_on(
    site: Site, change: dict[str, str], said: str
):
    worker, control = site.start("worker_process", "worker", **change), site.start("control_process", **change)
    assert said in worker.ready["ready"] and control.ready["url"] == ""
    assert said in (site.folder / "control_process.log").read_text()
    worker.ask(add="somebody", wanted=3)
    until(lambda: worker.ask(report="somebody")["finished"])
    assert TOKEN not in (site.folder / "control_process.log").read_text()
