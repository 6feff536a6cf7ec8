"""Files are written whole, and the same folder always gives the same files."""

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from chaos_mm.report import render
from tests.report.samples import DEVIATED, PASSED
from tests.report.stories import write


def files(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def test_a_run_gets_its_page_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = write(PASSED, tmp_path)
    before = files(folder)
    page = render.run(folder)
    assert page == folder / "index.html" and page.stat().st_mode & 0o777 == 0o644
    after = files(folder)
    assert {name: data for name, data in after.items() if name != "index.html"} == before
    render.run(folder)
    assert files(folder) == after


def test_the_overview_is_four_files(tmp_path: Path) -> None:
    write(PASSED, tmp_path)
    write(DEVIATED, tmp_path)
    told = render.all(tmp_path)
    assert set(files(tmp_path)) == {"index.html", "summary.json", "summary.md", "junit.xml"}
    assert json.loads((tmp_path / "summary.json").read_text()) == told
    assert [run["verdict"] for run in told["runs"]] == ["passed", "deviated"] and told["exit_code"] == 1
    assert all(run["folder"] in (tmp_path / "index.html").read_text() for run in told["runs"])


def test_a_folder_without_runs_has_an_overview_too(tmp_path: Path) -> None:
    assert render.all(tmp_path)["runs"] == []
    assert "0 runs" in (tmp_path / "index.html").read_text()


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(PASSED, tmp_path)
    render.run(folder)
    before = files(folder)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        render.run(folder)
    assert files(folder) == before


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        render.run(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere"):
        render.all(tmp_path / "nowhere")


def test_who_renders_last_has_seen_every_run(tmp_path: Path) -> None:
    first = write(PASSED, tmp_path)
    told: list[dict[str, object]] = []
    mine = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(mine, fcntl.LOCK_EX)  # another run's process that is in the middle of it
    late = threading.Thread(target=lambda: told.append(render.all(tmp_path)))
    late.start()
    late.join(0.2)
    assert late.is_alive() and not told
    second = write(DEVIATED, tmp_path)
    os.close(mine)
    late.join(30)
    assert [run["folder"] for run in told[0]["runs"]] == [first.name, second.name]  # type: ignore[attr-defined]


def test_who_never_lets_go_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_ALONE_SECONDS", 0.1)
    write(PASSED, tmp_path)
    mine = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(mine, fcntl.LOCK_EX)
    try:
        assert len(render.all(tmp_path)["runs"]) == 1
    finally:
        os.close(mine)
