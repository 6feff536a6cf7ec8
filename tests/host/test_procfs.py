"""Who is meant by a process id, a port or a command line, and who must not be touched."""

import os
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from chaos_mm.core.errors import NotInjectable
from chaos_mm.host import procfs
from tests.host.book import LISTENER, SLEEPER, started, wait_for
from tests.ports import free_ports


def test_an_identity_is_what_a_second_library_says_of_the_process():
    with started(SLEEPER) as process:
        who = procfs.identify(process.pid)
        assert who is not None and who.lives
        ticks = os.sysconf("SC_CLK_TCK")
        assert abs(who.start / ticks + psutil.boot_time() - psutil.Process(process.pid).create_time()) < 1.1
        assert who.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert procfs.Identity.from_json(who.to_json()) == who
        process.kill()
        wait_for(lambda: procfs.state_of(who) == "Z", "it is a zombie")
        assert not who.lives and procfs.identify(process.pid) is None
    assert not who.lives and procfs.state_of(who) == ""


def test_another_process_of_the_same_id_is_another():
    with started(SLEEPER) as process:
        who = procfs.identify(process.pid)
        assert who is not None
        for other in (
            procfs.Identity(who.pid, who.start + 1, who.boot),
            procfs.Identity(who.pid, who.start, "another boot"),
        ):
            assert not other.lives and procfs.state_of(other) == ""


def test_a_port_names_the_process_that_listens_there():
    port = free_ports(1)
    with started(LISTENER, port) as process:
        wait_for(lambda: procfs.listeners(port), "it listens")
        assert procfs.listeners(port) == {process.pid}
        assert procfs.choose(0, port, "").pid == process.pid
        with socket.create_connection(("127.0.0.1", port)):  # a client is none who listens
            assert procfs.listeners(port) == {process.pid}
    assert procfs.listeners(port) == set()


def test_descendants_belong_to_the_tree_and_others_do_not():
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SLEEPER!r}])"
    with started(code) as parent, started(SLEEPER) as other:
        wait_for(lambda: psutil.Process(parent.pid).children(), "it has a child")
        children = {child.pid for child in psutil.Process(parent.pid).children(recursive=True)}
        assert procfs.tree(parent.pid) == {parent.pid, *children}
        assert other.pid not in procfs.tree(parent.pid)
        for pid in children:
            psutil.Process(pid).kill()


def test_exactly_one_must_match_or_all_are_named():
    word = f"chosen-{time.monotonic_ns()}"
    with pytest.raises(NotInjectable, match=f"'{word}' names no process; exactly one process must match"):
        procfs.choose(0, 0, word)
    with started(SLEEPER, word) as one, started(SLEEPER, word) as two:
        wait_for(lambda: all(word in procfs.command_of(p.pid) for p in (one, two)), "both have begun")
        with pytest.raises(NotInjectable, match="names 2 processes: ") as caught:
            procfs.choose(0, 0, word)
        assert all(f"{process.pid} (" in str(caught.value) for process in (one, two))
        assert word not in str(caught.value).replace(f"'{word}'", "")  # other people's command lines are not shown
        assert procfs.choose(two.pid, 0, word).pid == two.pid
        with pytest.raises(NotInjectable, match=f"pid {one.pid}, 'elsewhere' names no process"):
            procfs.choose(one.pid, 0, "elsewhere")


@pytest.mark.parametrize(
    ("pid", "why"),
    [
        (1, "process 1 is never touched"),
        (os.getpid(), "is this host process or one of its parents"),
        (os.getppid(), "is this host process or one of its parents|process 1 is never touched"),
    ],
    ids=["process 1", "itself", "its parent"],
)
def test_what_is_never_touched(pid: int, why: str):
    with pytest.raises(NotInjectable, match=why):
        procfs.choose(pid, 0, "")


def test_nobody_named_is_refused():
    with pytest.raises(NotInjectable, match="say pid, listens_on or command"):
        procfs.choose(0, 0, "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's process")
def test_another_user_s_process_is_refused():
    process = subprocess.Popen(["/bin/sleep", "60"], user=65534, cwd="/")
    try:
        why = f"process {process.pid} belongs to user 65534; only those of user 0"
        with pytest.raises(NotInjectable, match=why):
            procfs.choose(process.pid, 0, "")
    finally:
        process.kill()
        process.wait()


def test_kernel_threads_have_no_command_line_and_are_never_found():
    if Path("/proc/2/cmdline").exists() and not Path("/proc/2/cmdline").read_bytes():
        with pytest.raises(NotInjectable, match="pid 2 names no process"):
            procfs.choose(2, 0, "")
