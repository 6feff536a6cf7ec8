"""``chaos-mm load`` as a process: it announces itself, sends, serves, and ends when told."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import read_token
from chaos_mm.core.canary import canary_key, read_canary_id
from tests.load.fake_openai import FakeOpenAI
from tests.processes import CHAOS_MM, Running, start


@pytest.fixture
def state(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


async def started(fake: FakeOpenAI, state: Path, *options: str, **env: str) -> Running:
    arguments = ("load", "--target-url", fake.url, "--control-port", "0", "--mix", "text", *options)
    return await asyncio.to_thread(start, *arguments, state=state, seconds=30.0, env=env)


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait for something to become true; the fake service runs meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(condition)
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come true in time")


async def test_it_sends_serves_and_ends(fake: FakeOpenAI, state: Path) -> None:
    file = state / "records.jsonl"
    options = ("--background-rate", "40", "--records-file", str(file), "--arrivals", "constant")
    load = await started(fake, state, *options, CHAOS_MM_TARGET_API_KEY="sk-secret-key")
    try:
        assert load.ready == {
            "ready": "load",
            "url": fake.url,
            "control_url": load.control_url,
            "pid": load.process.pid,
        }
        client = ControlClient(load.control_url, read_token(state / "token"))
        assert client.health()["point"] == "load"
        await asyncio.to_thread(client.put, "/marks/r1/baseline", {})
        answer = await until(lambda: _enough(client, 30))
        assert (answer["value"], answer["measured"]) == (1.0, True)
        assert {headers["authorization"] for headers in fake.headers} == {"Bearer sk-secret-key"}
        fake.mode = "hang"
        await until(lambda: client.get("/status")["in_flight"] > 5)
        # Nothing has timed out yet (see the records below), and still the outage shows.
        outage = await until(lambda: _broken(client))
        assert "requests open for up to" in outage["reason"]
    finally:
        began = time.monotonic()
        await asyncio.to_thread(load.stop)
    assert time.monotonic() - began < 3.0
    assert load.process.returncode == 0
    lines = [json.loads(line, parse_constant=pytest.fail) for line in file.read_text().splitlines()]
    assert {line["error"] for line in lines} == {"", "load"}
    key = canary_key(read_token(state / "token"))
    assert {bool(read_canary_id(key, line["id"])) for line in lines if line["audience"] == "canary"} == {True}
    assert "sk-secret-key" not in load.log.read_text() + file.read_text() + json.dumps(load.ready)


def _enough(client: ControlClient, samples: int) -> dict[str, Any] | None:
    answer = client.get("/slis/canary_exact", run="r1", phase="baseline")
    return dict(answer) if answer["samples"] >= samples else None


def _broken(client: ControlClient) -> dict[str, Any] | None:
    answer = client.get("/slis/ok_ratio", run="r1", phase="baseline", window_seconds=2)
    return dict(answer) if answer["value"] < 0.5 else None


async def test_traffic_on_request_ends_with_its_owner(fake: FakeOpenAI, state: Path) -> None:
    load = await started(fake, state)
    try:
        client = ControlClient(load.control_url, read_token(state / "token"))
        assert client.get("/status")["sending"] is False
        body = {"rate": 50.0, "ttl_seconds": 5, "keepalive_seconds": 5}
        await asyncio.to_thread(client.put, "/traffic/r1", body)
        await until(lambda: len(fake.seen) > 10)
        await asyncio.to_thread(client.delete, "/traffic/r1")
        await until(lambda: client.get("/status")["in_flight"] == 0)
        assert client.get("/status")["sending"] is False
        assert client.get("/slis/ok_ratio")["value"] == 1.0
    finally:
        await asyncio.to_thread(load.stop)


async def test_a_killed_load_leaves_nothing_running(fake: FakeOpenAI, state: Path) -> None:
    load = await started(fake, state, "--background-rate", "40")
    await until(lambda: len(fake.seen) > 5)
    assert psutil.Process(load.process.pid).children(recursive=True) == []
    load.kill()
    await until(lambda: fake.open == 0)
    # What the kernel still held of the dead process may come in a little later; then there must be silence.
    deadline, seen = time.monotonic() + 5.0, -1
    while seen != len(fake.seen):
        assert time.monotonic() < deadline
        seen = len(fake.seen)
        await asyncio.sleep(0.3)


async def test_a_proxy_that_is_not_there_is_said_at_the_start(fake: FakeOpenAI, state: Path) -> None:
    dead = await asyncio.to_thread(
        start, "load", "--proxy-url", "http://me:hidden@127.0.0.1:9", "--control-port", "0", state=state
    )
    try:
        await until(lambda: "nobody answers at 127.0.0.1:9" in dead.log.read_text())
        assert "hidden" not in dead.log.read_text()
        client = ControlClient(dead.control_url, read_token(state / "token"))
        assert client.get("/status")["model"] == "chaos-mm-tiny"
    finally:
        await asyncio.to_thread(dead.stop)
    load = await started(fake, state)
    await asyncio.to_thread(load.stop)
    assert "nobody answers" not in load.log.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--picture-size", "640"), "picture size is '640'; allowed: WIDTHxHEIGHT"),
        (("--lead-in", "0.6"), "speech window is 2.56 s; with a lead-in of 0.6 s"),
        (("--mix", "smell=1"), "mix is 'smell'; allowed: image"),
        (("--question", "smell=x"), "question is 'smell=x'"),
    ],
)
def test_bad_options_are_named_before_anything_runs(state: Path, options: tuple[str, ...], message: str) -> None:
    env = {**os.environ, "CHAOS_MM_STATE_DIR": str(state)}
    argv = [CHAOS_MM, "load", "--control-port", "0", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
