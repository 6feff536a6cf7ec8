"""A tethered command dies with its parent, also when the parent was dead before it could be tied."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos_mm.demo.state import process_started
from chaos_mm.demo.tether import tethered

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")


def touching(path: Path) -> list[str]:
    return tethered([sys.executable, "-c", f"open({str(path)!r}, 'w').close()"])


def test_it_becomes_the_command(tmp_path: Path) -> None:
    assert subprocess.run(touching(tmp_path / "made"), check=False, timeout=30).returncode == 0
    assert (tmp_path / "made").exists()


def test_a_parent_that_is_gone_already_is_noticed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait(30)
    argv = touching(tmp_path / "made")
    argv[argv.index(str(os.getpid()))] = str(dead.pid)
    late = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30)
    assert late.returncode == 1
    assert late.stderr.strip() == f"the parent {dead.pid} is gone"
    assert not (tmp_path / "made").exists()


def test_it_dies_with_its_parent() -> None:
    code = (
        "import os, signal, subprocess, sys; from chaos_mm.demo.tether import tethered; "
        "argv = tethered([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)']); "
        "child = subprocess.Popen(argv, stdout=subprocess.PIPE); child.stdout.readline(); "
        "print(child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    pid, end = int(parent.stdout), time.monotonic() + 10
    while process_started(pid):
        assert time.monotonic() < end, "it outlived its parent"
        time.sleep(0.02)
