"""Runs in order, by real ``chaos run`` processes that play what the test tells them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.sequence import closing, render, run_all
from chaos_mm.runner.view import View
from tests.chaos_cli.programs import finish
from tests.edge.chaos import wait_for
from tests.edge.conftest import heard_signals
from tests.runner.runs import player

__all__ = ["heard_signals"]
REPOSITORY = Path(__file__).parents[2]
PASSED = "write('events.jsonl', {'event': 'run', 'run': 'r1'}); write('verdict.json', {'verdict': 'passed'})"


class Recorder(View):
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def begin(self, planned: Planned, place: str) -> None:
        self.told.append(("begin", f"{place} {planned.name}"))

    def event(self, event: Mapping[str, Any]) -> None:
        self.told.append(("event", event["event"]))

    def output(self, line: str) -> None:
        if "hello" in line:
            self.told.append(("output", line))

    def end(self, ended: Ended) -> None:
        self.told.append(("end", ended.word))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")}
    nobody = {f"CHAOS_MM_{name}_CONTROL_URL": "http://127.0.0.1:9" for name in ("PROXY", "AGENT", "HOST", "LOAD")}
    return {**kept, **nobody, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tmp_path}", "HOME": str(tmp_path)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Callable[..., tuple[list[Ended], list[str]]]:
    def play(*planned: Planned, view: View | None = None) -> tuple[list[Ended], list[str]]:
        shown: list[str] = []
        log = f"--log-file={tmp_path / 'chaos.log'}"
        found = run_all(
            planned, reports_dir=tmp_path / "reports", environment=environment, show=shown.append, view=view,
            command=("--no-version-check", log),
        )  # fmt: skip
        return found, shown

    return play


def test_each_gets_a_folder_of_its_own_and_its_options(tmp_path: Path, run: Any) -> None:
    said = "print('hello', os.environ['CHAOS_MM_RUNNER'] == str(os.getppid()), flush=True)"
    one = player(tmp_path, "one", f"{said}\n{PASSED}")
    expect = player(tmp_path, "two", f"{PASSED}\nwrite('seen', [os.environ['CHAOS_MM_EXPECT'], sys.argv[-1]])")
    view = Recorder()
    ended, shown = run(Planned(one), Planned(expect, ("--fail-fast",), "deviated"), view=view)
    assert [(e.word, e.status, e.as_expected) for e in ended] == [("passed", 0, True), ("passed", 0, False)]
    assert view.told == [
        ("begin", "1/2 one"), ("event", "run"), ("output", "hello True"), ("end", "passed"),
        ("begin", "2/2 two"), ("event", "run"), ("end", "passed"),
    ]  # fmt: skip
    assert json.loads((ended[1].folder / "seen").read_text()) == ["deviated", expect]
    assert all(e.folder.is_absolute() and (e.folder / "journal.json").is_file() for e in ended)
    assert [line.split()[:2] for line in shown] == [["one", "passed"], ["two", "passed"]]


def test_without_a_view_its_lines_are_shown_indented(tmp_path: Path, run: Any) -> None:
    _, shown = run(Planned(player(tmp_path, "one", "print('hello', flush=True)"), foreign=True))
    assert "  hello" in shown
    assert shown[-1].startswith("one  exit 0  reports/foreign/")


@pytest.mark.parametrize(
    ("body", "foreign", "word", "status"),
    [
        ("pass", False, "error", 0),
        ("write('verdict.json', {'verdict': 'splendid'})", False, "error", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", False, "error", -9),
        ("write('verdict.json', {'verdict': 'passed'}); os._exit(1)", False, "error", 1),
        ("write('verdict.json', {'verdict': 'dry'}); os._exit(4)", False, "error", 4),
        ("write('verdict.json', {'verdict': 'deviated'}); os._exit(1)", False, "deviated", 1),
        ("os._exit(1)", True, "", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", True, "", -9),
    ],
)
def test_the_word_is_believed_only_with_its_exit_status(
    tmp_path: Path, run: Any, body: str, foreign: bool, word: str, status: int
) -> None:
    ((ended,), shown) = run(Planned(player(tmp_path, "one", body), foreign=foreign))
    assert (ended.word, ended.status) == (word, status)
    assert any("left no verdict" in line or "its exit status" in line for line in shown) == (word == "error")


STOPPED = """
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, lambda n, f: write('got', n))
write('pid', os.getpid())
while not (folder / 'got').exists(): time.sleep(0.02)
write('verdict.json', {'verdict': 'interrupted'})
time.sleep(0.3)
os._exit(4)
"""
STUBBORN = """
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
write('pid', os.getpid())
time.sleep(120)
"""
RUNNER = """
import os, sys, pathlib
from chaos_mm.runner import relay, sequence
from chaos_mm.runner.planned import Planned
relay.GRACE_SECONDS = 0.5
ended = sequence.run_all([Planned(one) for one in sys.argv[1:]], reports_dir=pathlib.Path("reports"),
                         environment=os.environ, show=print)
print("ENDED", [one.word for one in ended], flush=True)
"""


def started(tmp_path: Path, environment: dict[str, str], *sources: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, *sources], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: list(tmp_path.glob("reports/*/pid")), 60)
    except AssertionError:
        process.kill()
        process.communicate()
        raise
    return process


@pytest.mark.parametrize(("number", "got"), [(signal.SIGINT, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM)])
def test_a_signal_ends_the_run_under_way_and_the_list(
    tmp_path: Path, environment: dict[str, str], number: int, got: int
) -> None:
    sources = (player(tmp_path, "one", STOPPED.strip()), player(tmp_path, "two", PASSED))
    process = started(tmp_path, environment, *sources)
    process.send_signal(number)
    output = finish(process).stdout
    assert "ENDED ['interrupted']" in output
    (folder,) = (tmp_path / "reports").iterdir()
    assert json.loads((folder / "got").read_text()) == got


def test_after_a_second_one_a_stubborn_child_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    process = started(tmp_path, environment, player(tmp_path, "one", STUBBORN.strip()), player(tmp_path, "two", PASSED))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    output = finish(process).stdout
    assert "ENDED ['error']" in output
    assert "the run left no verdict" in output


def test_a_view_that_breaks_ends_the_run(tmp_path: Path, run: Any) -> None:
    class Broken(View):
        def event(self, event: Mapping[str, Any]) -> None:
            raise BrokenPipeError

    body = "write('pid', os.getpid())\nwrite('events.jsonl', {'event': 'run'})\ntime.sleep(120)"
    with pytest.raises(BrokenPipeError):
        run(Planned(player(tmp_path, "one", body)), view=Broken())
    (pid,) = (json.loads(path.read_text()) for path in tmp_path.glob("reports/*/pid"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_folder_no_run(tmp_path: Path, run: Any) -> None:
    (tmp_path / "reports").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="reports"):
        run(Planned(player(tmp_path, "one", PASSED)))


def test_the_report_covers_a_run_that_died_and_leaves_foreign_ones_out(tmp_path: Path, run: Any) -> None:
    dead, other = player(tmp_path, "dead", "os._exit(1)"), player(tmp_path, "other", "pass")
    ended, _ = run(Planned(dead), Planned(other, foreign=True))
    assert render(ended[1:], tmp_path / "reports") is None
    page = render(ended, tmp_path / "reports")
    assert page is not None and page.is_file()
    assert (ended[0].folder / "index.html").is_file()
    summary = json.loads((tmp_path / "reports/summary.json").read_text())
    assert [(one["experiment"], one["verdict"]) for one in summary["runs"]] == [("dead", "error")]


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path, run: Any) -> None:
    ended, _ = run(Planned(player(tmp_path, "dead", "os._exit(1)")))
    assert closing(ended, tmp_path / "reports") == f"Report: {tmp_path}/reports/index.html"
    assert closing(ended, tmp_path / "nowhere").startswith("The report could not be written: ")
    assert closing([], tmp_path / "nowhere") == ""
