"""``chaos-mm report``: render again, from whatever is there."""

from pathlib import Path

import pytest

from chaos_mm.report import render
from tests.cli.conftest import Cli
from tests.report.samples import DEVIATED, PASSED
from tests.report.stories import write


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CHAOS_MM_REPORTS", raising=False)
    monkeypatch.chdir(tmp_path)


def test_all_runs_of_a_folder(cli: Cli, tmp_path: Path) -> None:
    folders = [write(PASSED, tmp_path / "kept"), write(DEVIATED, tmp_path / "kept", cut_in='"sample"', verdict=False)]
    shown = cli("report", "kept")
    assert (shown.exit_code, shown.stdout) == (0, "kept/index.html\n")
    assert all((folder / "index.html").is_file() for folder in folders)
    assert {one.name for one in (tmp_path / "kept").iterdir() if one.is_file()} >= {
        "summary.json",
        "junit.xml",
        "summary.md",
    }


def test_one_run_alone(cli: Cli, tmp_path: Path) -> None:
    folder = write(PASSED, tmp_path)
    shown = cli("report", str(folder))
    assert (shown.exit_code, shown.stdout) == (0, f"{folder}/index.html\n")
    assert not (tmp_path / "index.html").exists()


def test_the_folder_is_reports_or_what_the_environment_names(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(PASSED, tmp_path / "reports")
    assert cli("report").stdout == "reports/index.html\n"
    monkeypatch.setenv("CHAOS_MM_REPORTS", "elsewhere")
    write(PASSED, tmp_path / "elsewhere")
    assert cli("report").stdout == "elsewhere/index.html\n"


def test_a_folder_that_is_not_there_or_holds_no_run_is_one_line(cli: Cli, tmp_path: Path) -> None:
    missing = cli("report", "nowhere")
    assert missing.exit_code == 1 and missing.stderr.startswith("Error: nowhere: no such folder")
    (tmp_path / "empty").mkdir()
    empty = cli("report", "empty")
    assert empty.exit_code == 1 and "empty: no run in it" in empty.stderr and "events.jsonl" in empty.stderr


def test_a_folder_that_cannot_be_written_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(PASSED, tmp_path)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder / ".index.html"))

    monkeypatch.setattr("tempfile.mkstemp", refused)
    shown = cli("report", str(folder))
    assert shown.exit_code == 1 and "Permission denied" in shown.stderr and "Traceback" not in shown.output


def test_one_folder_that_cannot_be_written_keeps_no_other_from_its_page(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = write(PASSED, tmp_path / "reports"), write(DEVIATED, tmp_path / "reports")
    write_page = render.run

    def refused(folder: Path) -> Path:
        if folder == Path("reports") / first.name:
            raise PermissionError(13, "Permission denied", str(folder))
        return write_page(folder)

    monkeypatch.setattr(render, "run", refused)
    shown = cli("report", "reports")
    assert shown.exit_code == 1 and first.name in shown.stderr and "Permission denied" in shown.stderr
    assert (second / "index.html").is_file() and second.name in (tmp_path / "reports/index.html").read_text()
