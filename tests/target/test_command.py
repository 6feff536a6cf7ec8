"""``chaos-mm target`` as a process: ready line, standby, taken port, orderly end."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.model
RUN = "from chaos_mm.cli import main; import sys; sys.argv[0] = 'chaos-mm'; main()"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an http_proxy is not for us


@contextmanager
def target(*options: str) -> Iterator["subprocess.Popen[str]"]:
    """The command as a child that is gone afterwards."""
    argv = [sys.executable, "-c", RUN, "target", *options]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def first_line(child: "subprocess.Popen[str]") -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, child.stderr.read() if child.stderr else ""
    return dict(json.loads(line))


def test_says_ready_serves_and_ends_on_sigterm() -> None:
    with target("--port", "0", "--model-name", "mine") as child:
        ready = first_line(child)
        assert ready["ready"] == "target" and ready["pid"] == child.pid
        with DIRECT.open(f"{ready['url']}/v1/models", timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == "mine"
        started = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0 and time.monotonic() - started < 3
        assert child.stdout is not None and child.stdout.read() == ""


def test_standby_listens_after_a_line_only() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with target("--port", str(port), "--standby") as child:
        assert first_line(child)["standby"] == "target"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
        assert child.stdin is not None
        started = time.monotonic()
        child.stdin.write("go\n")
        child.stdin.flush()
        assert first_line(child)["url"] == f"http://127.0.0.1:{port}"
        assert time.monotonic() - started < 2


def test_standby_ends_when_nobody_can_want_it_any_more() -> None:
    with target("--port", "0", "--standby") as child:
        assert "standby" in first_line(child)
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(10) == 0


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with target("--port", str(port)) as child:
            assert child.wait(60) == 1
            assert child.stderr is not None and f"cannot listen on 127.0.0.1:{port}" in child.stderr.read()
