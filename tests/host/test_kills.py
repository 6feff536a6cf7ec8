"""SIGKILL of chaos, of the host, of its parent, and a host that is stuck: nothing is held by keepalive + 1 s."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos_mm.control.client import ControlClient
from tests.host.book import SLEEPER, started, state, wait_for
from tests.host.conftest import OPTIONS, Host
from tests.processes import CHAOS_MM

KEEPALIVE_SECONDS = 5.0
MIB = 1 << 20


@pytest.fixture
def victim():
    with started(SLEEPER) as process:
        yield process


def lease(fault: str, **params: Any) -> dict[str, Any]:
    return {"owner": "run-1", "fault": fault, "params": params, "ttl_seconds": 60, "keepalive_seconds": 5}


def hold_all(client: ControlClient, victim: "subprocess.Popen[bytes]") -> psutil.Process:
    """A paused process, and a child that holds memory; the child."""
    floor = psutil.virtual_memory().available / MIB - 800  # others on the machine take and give meanwhile
    client.put_lease("memory", lease("host_memory_stress", floor_mib=floor, ramp_seconds=0))
    client.put_lease("pause", lease("process_pause", pid=victim.pid))
    wait_for(
        lambda: all([client.keepalive(name, "run-1")["applied"] for name in ("memory", "pause")]), "both stand", 45.0
    )
    assert state(victim.pid) == "T"
    children = psutil.Process(_host_of(client)).children()
    (holder,) = [child for child in children if "chaos_mm.host.holder" in child.cmdline()]
    assert holder.memory_info().rss > 100 * MIB
    assert Path(f"/proc/{holder.pid}/oom_score_adj").read_text().strip() == "1000"
    return holder


def _host_of(client: ControlClient) -> int:
    port = int(client.url.rpartition(":")[2])
    (pid,) = {c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"}
    assert pid is not None
    return pid


def gone(victim: "subprocess.Popen[bytes]", holder: psutil.Process) -> bool:
    return state(victim.pid) in ("R", "S") and state(holder.pid) in ("", "Z")


def test_a_killed_host_holds_nothing_a_second_later(host: Host, victim: "subprocess.Popen[bytes]"):
    holder = hold_all(host.client, victim)
    os.kill(host.pid, signal.SIGKILL)
    wait_for(lambda: gone(victim, holder), "all is let go", 1.0)


def test_a_killed_chaos_holds_nothing_after_its_keepalive(host: Host, victim: "subprocess.Popen[bytes]"):
    holder = hold_all(host.client, victim)  # nobody renews them
    wait_for(lambda: gone(victim, holder), "all is let go", KEEPALIVE_SECONDS + 1.0)
    found = {one["name"]: one for one in host.client.leases()}
    assert {one["ended_by"] for one in found.values()} == {"keepalive"}
    wait_for(lambda: all(one["undo"]["proven"] for one in host.client.leases()), "both undos are proven")


def test_a_stuck_host_holds_nothing_after_its_keepalive(host: Host, victim: "subprocess.Popen[bytes]"):
    holder = hold_all(host.client, victim)
    os.kill(host.pid, signal.SIGSTOP)
    wait_for(lambda: gone(victim, holder), "all is let go", KEEPALIVE_SECONDS + 1.0)
    os.kill(host.pid, signal.SIGCONT)


def test_renewals_reach_watchdog_and_holder(host: Host, victim: "subprocess.Popen[bytes]"):
    holder = hold_all(host.client, victim)
    until = time.monotonic() + KEEPALIVE_SECONDS + 2.0
    while time.monotonic() < until:
        for name in ("memory", "pause"):
            host.client.keepalive(name, "run-1")
        assert state(victim.pid) == "T" and holder.is_running()
        time.sleep(0.5)
    for name in ("memory", "pause"):
        host.client.release(name, "run-1")
    wait_for(lambda: gone(victim, holder), "all is let go", 1.0)


def test_leases_end_when_the_parent_of_the_host_is_killed(tmp_path: Path, victim: "subprocess.Popen[bytes]"):
    tmp_path.chmod(0o700)
    env = {**os.environ, "CHAOS_MM_STATE_DIR": str(tmp_path), "CHAOS_MM_TOKEN_FILE": str(tmp_path / "token")}
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    with started(
        code, CHAOS_MM, "host", *OPTIONS, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        ready = json.loads(parent.stdout.readline())
        client = ControlClient(ready["control_url"], (tmp_path / "token").read_text().strip())
        try:
            holder = hold_all(client, victim)
            parent.kill()
            wait_for(lambda: gone(victim, holder), "all is let go", 1.0)
            assert client.health()["armed"] is False
        finally:
            os.kill(ready["pid"], signal.SIGTERM)


def test_a_limit_is_lifted_when_the_host_is_killed(host: Host, victim: "subprocess.Popen[bytes]"):
    before = resource.prlimit(victim.pid, resource.RLIMIT_AS)
    host.client.put_lease("cap", lease("host_memory_stress", kind="process", pid=victim.pid, headroom_mib=64))
    wait_for(lambda: host.client.lease("cap")["applied"], "it stands")
    assert resource.prlimit(victim.pid, resource.RLIMIT_AS) != before
    os.kill(host.pid, signal.SIGKILL)
    wait_for(lambda: resource.prlimit(victim.pid, resource.RLIMIT_AS) == before, "it is lifted", 1.0)


def test_the_next_host_undoes_what_host_and_watchdog_left(
    start_host: Callable[[], Host], victim: "subprocess.Popen[bytes]"
):
    host = start_host()
    host.client.put_lease("pause", lease("process_pause", pid=victim.pid))
    wait_for(lambda: host.client.lease("pause")["applied"], "it stands")
    (dog,) = [p for p in psutil.Process(host.pid).children() if "watchdog.py" in " ".join(p.cmdline())]
    dog.kill()
    os.kill(host.pid, signal.SIGKILL)
    time.sleep(0.5)
    assert state(victim.pid) == "T", "nobody was left to continue it"
    second = start_host()
    assert state(victim.pid) in ("R", "S")
    assert second.client.get("/host")["pending_undo"] == 0


def test_a_second_host_does_not_undo_what_the_first_holds(
    start_host: Callable[[], Host], victim: "subprocess.Popen[bytes]"
):
    first = start_host()
    first.client.put_lease("pause", {**lease("process_pause", pid=victim.pid), "keepalive_seconds": 60})
    wait_for(lambda: first.client.lease("pause")["applied"], "it stands")
    start_host()
    assert state(victim.pid) == "T"
    first.client.release("pause", "run-1")
    wait_for(lambda: state(victim.pid) in ("R", "S"), "it goes on", 2.0)


def test_sigterm_undoes_before_it_leaves(host: Host, victim: "subprocess.Popen[bytes]"):
    holder = hold_all(host.client, victim)
    host.running.process.terminate()
    assert host.running.process.wait(10) == 0
    assert gone(victim, holder)
