"""Up, down and everything that can go wrong between them, with real processes: the supervisor is ours, the services
are stand-ins.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chaos_mm.demo import lifecycle
from chaos_mm.demo.lifecycle import Demo, DemoError
from chaos_mm.demo.ports import Ports
from chaos_mm.demo.state import DemoState, ServiceState, process_started
from tests.demo.conftest import SUPERVISOR


def bring_up(base_port: int, attached: bool = False) -> tuple[Demo, list[str]]:
    said: list[str] = []
    return lifecycle.up(base_port, said.append, attached, SUPERVISOR), said


def state() -> DemoState:
    found = lifecycle.read()
    assert found is not None
    return found


def service(name: str) -> ServiceState:
    return next(one for one in state().services if one.name == name)


def serving_pid(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        return int(connection.recv(16))


def eventually(holds: object, within_seconds: float = 5.0) -> float:
    """Seconds until it holds."""
    assert callable(holds)
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < within_seconds, "did not come about in time"
        time.sleep(0.02)
    return time.monotonic() - begin


def gone(pid: int) -> bool:
    return process_started(pid) == ""


def test_up_serves_and_down_leaves_nothing(home: Path, base_port: int) -> None:
    demo, said = bring_up(base_port)
    ports = Ports(base_port)
    pids = [demo.state.pid, serving_pid(ports.by_use["target"]), serving_pid(ports.by_use["load control"])]
    assert demo.mine and demo.state.state == "up"
    assert any("load: up" in line for line in said)
    assert stat.S_IMODE((home / "demo.json").stat().st_mode) == 0o600
    assert lifecycle.down(said.append)
    assert all(gone(pid) for pid in pids)
    assert ports.taken() == [] and lifecycle.read() is None


def test_a_second_up_changes_nothing(home: Path, base_port: int) -> None:
    first, _ = bring_up(base_port)
    second, said = bring_up(base_port)
    assert second.state.pid == first.state.pid and not second.mine
    assert "up already" in said[-1]
    with pytest.raises(DemoError, match=f"up at ports from {base_port}"):
        bring_up(base_port + 10)


def interrupted_up(base_port: int, after_seconds: float, flags: str = "") -> None:
    """An ``up`` that is killed before its demo is up."""
    code = f"from chaos_mm.demo import lifecycle; lifecycle.up({base_port}, print, False, {SUPERVISOR!r})"
    environment = {**os.environ, "STAND_IN_FLAGS": flags}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, env=environment) as first:
        eventually(lambda: lifecycle.read() is not None)
        time.sleep(after_seconds)
        first.kill()


@pytest.mark.parametrize("after_seconds", [0.0, 0.3])
def test_up_after_an_up_that_was_killed_is_truly_up(home: Path, base_port: int, after_seconds: float) -> None:
    interrupted_up(base_port, after_seconds, "never-ready")
    again, _ = bring_up(base_port)
    time.sleep(0.5)  # one on its way down would be gone by now
    assert again.mine and state().state == "up"
    assert state().supervised and serving_pid(Ports(base_port).by_use["load control"])


def test_up_beside_a_demo_that_is_starting_waits_for_it(home: Path, base_port: int) -> None:
    code = "import sys; sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as sleeper:
        one = DemoState("starting", sleeper.pid, process_started(sleeper.pid), base_port, 0.0, {})
        home.mkdir(mode=0o700)
        one.write(home / "demo.json")
        up = threading.Timer(0.3, lambda: replace(one, state="up").write(home / "demo.json"))
        up.start()
        demo, said = bring_up(base_port)
        up.join()
        assert not demo.mine and demo.state.state == "up"
        assert "A demo is starting" in said[0] and "up already" in said[1]


def test_down_without_up_is_no_error(home: Path) -> None:
    assert not lifecycle.down(lambda text: None)


def test_a_taken_port_is_named_and_nothing_starts(home: Path, base_port: int) -> None:
    with socket.create_server(("127.0.0.1", base_port + 5)), pytest.raises(DemoError) as caught:
        bring_up(base_port)
    assert f"{base_port + 5} (load control) is taken" in str(caught.value) and "--base-port" in str(caught.value)
    assert lifecycle.read() is None


def test_a_killed_target_is_back_by_its_spare_and_counted(home: Path, base_port: int) -> None:
    bring_up(base_port)
    port = Ports(base_port).by_use["target"]
    killed = serving_pid(port)
    os.kill(killed, signal.SIGKILL)
    took = eventually(lambda: service("target").restarts == 1 and service("target").state == "up")
    assert took < 5 and serving_pid(port) != killed
    assert service("target").last_exit == "killed by SIGKILL"
    os.kill(serving_pid(port), signal.SIGKILL)  # and once more: a new spare stands by
    eventually(lambda: service("target").restarts == 2 and service("target").state == "up")


def test_children_die_with_a_killed_supervisor(home: Path, base_port: int) -> None:
    demo, said = bring_up(base_port)
    ports = Ports(base_port)
    pids = [serving_pid(ports.by_use[use]) for use in ("target", "load control")]
    os.kill(demo.state.pid, signal.SIGKILL)
    eventually(lambda: all(gone(pid) for pid in pids))
    assert not state().supervised
    again, _ = bring_up(base_port)  # cleans up after the dead one by itself
    assert again.mine and again.state.pid != demo.state.pid


@pytest.mark.parametrize(
    ("flags", "words"),
    [("early", "load ended while it started (exit 7)"), ("never-ready", "load was not ready within 2 s")],
)
def test_a_part_that_does_not_start_takes_all_down(
    home: Path, base_port: int, monkeypatch: pytest.MonkeyPatch, flags: str, words: str
) -> None:
    monkeypatch.setenv("STAND_IN_FLAGS", flags)
    with pytest.raises(DemoError) as caught:
        bring_up(base_port)
    assert words in str(caught.value) and "nothing of it was left running" in str(caught.value)
    assert flags != "early" or "the model file is broken" in str(caught.value)
    assert Ports(base_port).taken() == [] and lifecycle.read() is None


def test_one_that_keeps_dying_is_given_up_with_everything(home: Path, base_port: int) -> None:
    bring_up(base_port)
    port = Ports(base_port).by_use["load control"]
    for deaths in range(1, 6):
        os.kill(serving_pid(port), signal.SIGKILL)
        if deaths < 5:
            eventually(lambda: service("load").restarts == deaths and service("load").state == "up")  # noqa: B023
    eventually(lambda: state().state == "failed")
    assert "load died 5 times in a minute" in state().reason
    eventually(lambda: not state().supervised and Ports(base_port).taken() == [])


def test_an_attached_demo_ends_with_the_process_that_asked(home: Path, base_port: int) -> None:
    code = (
        "import os, signal; from chaos_mm.demo import lifecycle; "
        f"lifecycle.up({base_port}, print, True, {SUPERVISOR!r}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60)
    eventually(lambda: lifecycle.read() is None)
    assert Ports(base_port).taken() == []


def test_two_at_once_end_up_with_one_demo(home: Path, base_port: int) -> None:
    code = (
        "from chaos_mm.demo import lifecycle; "
        f"print(lifecycle.up({base_port}, lambda text: None, False, {SUPERVISOR!r}).state.pid)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    pids = {process.communicate(timeout=60)[0].strip() for process in both}
    assert pids == {str(state().pid)}
