"""A child's lines, events and end."""

import signal
import time
from pathlib import Path

import pytest

from chaos_mm.runner.child import Child, EventFile
from tests.edge.chaos import wait_for
from tests.runner.runs import events_of, quiet_program


def test_its_lines_and_its_exit_status(tmp_path: Path) -> None:
    child = Child(quiet_program("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), {})
    assert child.wait(20) == 3
    assert sorted(child.lines()) == ["err", "out"]
    assert list(child.lines()) == []
    child.send(signal.SIGTERM)  # it is gone: nothing to tell


def test_it_has_a_session_of_its_own_and_no_stdin() -> None:
    child = Child(quiet_program("import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '')"), {})
    assert child.wait(20) == 0
    assert list(child.lines()) == ["True True"]


def test_a_running_one_is_told_and_killed() -> None:
    child = Child(quiet_program("import time; time.sleep(60)"), {})
    assert child.wait(0.01) is None
    child.kill()
    assert child.wait(0) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "status"), [("", -signal.SIGTERM), ("signal.signal(15, signal.SIG_IGN);", -signal.SIGKILL)]
)
def test_it_is_asked_to_end_before_it_is_killed(code: str, status: int) -> None:
    child = Child(quiet_program(f"import signal, time; {code} print('on', flush=True); time.sleep(60)"), {})
    wait_for(lambda: list(child.lines()))
    child.end(1.0)
    assert child.wait(0) == status


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_us_up() -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)']).pid)"
    child = Child(quiet_program(code), {})
    began = time.monotonic()
    status = child.wait(20)
    (pid,) = child.lines()
    Child(["kill", "-9", pid], {"PATH": "/bin:/usr/bin"}).wait(10)
    assert status == 0
    assert time.monotonic() - began < 15


def test_events_come_once_and_only_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    file = EventFile(path)
    assert file.read() == []
    path.write_text(events_of({"event": "run"}) + '{"event": "pha')
    assert file.read() == [{"event": "run"}]
    assert file.read() == []
    with path.open("a") as stream:
        stream.write('se"}\n[1]\nno JSON\n{"no": "event"}\n' + events_of({"event": "end"}))
    assert file.read() == [{"event": "phase"}, {"event": "end"}]
