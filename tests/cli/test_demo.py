"""The demo's commands where there is no demo; with one, tests/demo."""

from pathlib import Path

import pytest

from chaos_mm.demo.state import DemoState, ServiceState
from tests.cli.conftest import Cli


def test_status_without_a_demo(cli: Cli) -> None:
    shown = cli("demo", "status")
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert "chaos-mm demo up" in shown.stderr


def test_down_without_a_demo_is_no_error_and_says_so(cli: Cli) -> None:
    shown = cli("demo", "down")
    assert shown.exit_code == 0
    assert "nothing to bring down" in shown.stderr


def test_status_after_the_supervisor_was_killed(cli: Cli, state: Path) -> None:
    state.mkdir(mode=0o700)
    service = ServiceState("target", "http://127.0.0.1:8600", "up", 4_000_000, 2, "killed by SIGKILL", 0.12)
    DemoState("up", 4_000_001, "no-such-boot:1", 61000, 0.0, {}, [service]).write(state / "demo.json")
    shown = cli("demo", "status")
    assert shown.exit_code == 1
    assert "target   gone" in shown.stdout
    assert "its supervisor was killed" in shown.stderr
    assert cli("demo", "down").exit_code == 0
    assert not (state / "demo.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"state": "up"}'])
def test_a_broken_state_file_counts_as_no_demo(cli: Cli, state: Path, text: str) -> None:
    state.mkdir(mode=0o700)
    (state / "demo.json").write_text(text, encoding="utf-8")
    assert cli("demo", "status").exit_code == 1
    assert cli("status").exit_code in (0, 3)
