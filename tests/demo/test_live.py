"""The real demo: target, proxy, host point and load as processes, by the commands that a person types."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.demo.ports import Ports
from chaos_mm.demo.state import DemoState
from tests.ports import free_ports

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
CHAOS_MM = str(Path(sys.executable).with_name("chaos-mm"))
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an http_proxy is not for us


class Shell:
    """Runs ``chaos-mm`` with a state folder and ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.ports = Ports(free_ports(6))
        self.state_file = folder / "state/demo.json"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")}
        self.environment = {**kept, "CHAOS_MM_STATE_DIR": str(folder / "state")}

    def run(self, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**self.environment, **more}
        return subprocess.run(
            [CHAOS_MM, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=180
        )

    def state(self) -> DemoState | None:
        return DemoState.read(self.state_file)


def eventually(holds: Callable[[], Any], within_seconds: float) -> float:
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < within_seconds, "did not come about in time"
        time.sleep(0.02)
    return time.monotonic() - begin


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.run("demo", "down")
    assert made.ports.taken() == []


def answers(url: str) -> bool:
    try:
        with DIRECT.open(f"{url}/health", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_up_status_kill_down(shell: Shell) -> None:
    up = shell.run("demo", "up", "--base-port", str(shell.ports.base))
    assert up.returncode == 0, up.stderr
    lines = up.stdout.splitlines()
    assert lines
    assert all(re.fullmatch(r"export CHAOS_MM_[A-Z_]+=\S+", line) for line in lines), up.stdout
    exports = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    assert answers(exports["CHAOS_MM_TARGET_URL"])
    assert shell.run("doctor", **exports).returncode == 0
    assert shell.run("status", **exports).returncode == 0

    state = shell.state()
    assert state is not None
    os.kill(state.services[0].pid, signal.SIGKILL)
    took = eventually(lambda: not answers(exports["CHAOS_MM_TARGET_URL"]), 1.0)
    took += eventually(lambda: answers(exports["CHAOS_MM_TARGET_URL"]), 5.0)
    assert took < 5
    eventually(lambda: shell.run("demo", "status").returncode == 0, 60.0)
    shown = shell.run("demo", "status").stdout
    assert re.search(r"target +up .* 1 +killed by SIGKILL, back in [0-9.]+ s", shown), shown

    again = shell.run("demo", "up", "--base-port", str(shell.ports.base))
    assert again.returncode == 0
    assert again.stdout == up.stdout
    assert "up already" in again.stderr
    assert shell.run("demo", "down").returncode == 0
    assert shell.ports.taken() == []
    assert shell.run("demo", "status").returncode == 1


def test_an_interrupt_in_the_middle_brings_everything_down(shell: Shell, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [CHAOS_MM, "demo", "--base-port", str(shell.ports.base)],
            env={**shell.environment, "CHAOS_MM_REPORTS": str(tmp_path / "reports")},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: "  baseline (" in output.read_text(encoding="utf-8"), 90.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.wait()
    assert shell.state() is None
    assert shell.ports.taken() == []
    (folder,) = [path for path in (tmp_path / "reports").iterdir() if path.is_dir()]
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "interrupted"


def test_a_target_killed_in_the_middle_of_a_run_shows_in_its_verdict(shell: Shell) -> None:
    """Release succeeds, the evidence says that another process serves, and that one answers right."""
    up = shell.run("demo", "up", "--base-port", str(shell.ports.base))
    assert up.returncode == 0, up.stderr
    exports = dict(line.removeprefix("export ").split("=", 1) for line in up.stdout.splitlines())
    short = {f"CHAOS_MM_{phase}_SECONDS": "10" for phase in ("BASELINE", "FAULT", "RECOVERY")}
    chaos = Path(sys.executable).with_name("chaos")
    run = subprocess.Popen(
        [chaos, "--no-version-check", "--log-file", shell.state_file.with_name("chaos.log"), "run"]
        + ["--journal-path", shell.state_file.with_name("journal.json"), "experiments/image-noise.json"],
        env={**shell.environment, **exports, **short, "CHAOS_MM_REPORTS": str(shell.state_file.with_name("reports"))},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: shell.run("status", **exports).returncode == 1, 60.0)
        state = shell.state()
        assert state is not None
        os.kill(state.services[0].pid, signal.SIGKILL)
        run.wait(90)
    finally:
        run.kill()
        run.wait()
    (path,) = shell.state_file.parent.glob("reports/*/verdict.json")
    verdict = json.loads(path.read_text())
    assert verdict["target_replaced"] is True
    (lease,) = verdict["leases"]
    assert lease["ended_by"] == "release"
    assert lease["applied"] > 0
    recovered = verdict["slis"]["recovery"]["canary_exact"]
    assert recovered["measured"] and recovered["value"] >= 0.9, recovered
