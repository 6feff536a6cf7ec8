"""The supervisor's own loop, without processes: a state file that cannot be written ends no demo that serves."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.demo.state import DemoState, process_started
from chaos_mm.demo.supervisor import Supervisor


def demo_state() -> DemoState:
    return DemoState("starting", os.getpid(), process_started(os.getpid()), 8600, 0.0, {})


def supervisor(path: Path, told: list[str]) -> Supervisor:
    """One of no services, which is up at its first look."""
    return Supervisor([], demo_state(), path, lambda state: told.append(state.state))


def stored(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))["state"]


def test_it_says_that_it_is_stopping_before_it_is_gone(tmp_path: Path) -> None:
    told: list[str] = []
    one = supervisor(tmp_path / "demo.json", told)

    def wait(up: bool) -> None:
        assert up and stored(tmp_path / "demo.json") == "up"
        one.stopping = True

    assert one.run(wait) == 0
    assert told == ["starting", "up", "stopping"]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_up_is_logged_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, away, told = tmp_path / "state", tmp_path / "away", list[str]()
    folder.mkdir()
    one, looks = supervisor(folder / "demo.json", told), 0

    def wait(up: bool) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:  # from now on the folder is not there, and there is something to write
            folder.rename(away)
            one.state.reason, one._written = "changed", ""
        if looks == 4:
            away.rename(folder)
        if looks == 5:
            assert json.loads((folder / "demo.json").read_text(encoding="utf-8"))["reason"] == "changed"
            one.stopping = True

    with caplog.at_level(logging.ERROR):
        assert one.run(wait) == 0
    assert looks == 5
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1


def test_a_state_that_cannot_be_written_at_the_start_ends_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        supervisor(tmp_path / "none" / "demo.json", []).run(lambda up: None)


def test_that_it_is_up_must_become_known(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    one = Supervisor([], demo_state(), folder / "demo.json", lambda state: folder.rename(tmp_path / "away"))
    with pytest.raises(FileNotFoundError):
        one.run(lambda up: None)
    assert stored(tmp_path / "away" / "demo.json") == "starting"


def test_a_write_that_fails_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "demo.json").mkdir()
    with pytest.raises(OSError, match=r"demo\.json"):
        demo_state().write(tmp_path / "demo.json")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]
