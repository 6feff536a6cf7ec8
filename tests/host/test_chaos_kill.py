"""A real ``chaos run`` that pauses a process and is killed with SIGKILL: the process goes on by keepalive + 1 s."""

import subprocess
from pathlib import Path

from tests.edge.chaos import Chaos, activity, experiment, hold
from tests.edge.conftest import CLOSED
from tests.host.book import SLEEPER, started, state, wait_for
from tests.host.conftest import Host

KEEPALIVE_SECONDS = 5.0


def test_a_killed_chaos_run_holds_nothing_by_keepalive_and_a_second(host: Host, tmp_path: Path):
    others = {f"CHAOS_MM_{name}_CONTROL_URL": CLOSED for name in ("PROXY", "AGENT", "LOAD")}
    token = {"CHAOS_MM_TOKEN_FILE": str(tmp_path / "token")}
    chaos = Chaos(tmp_path, {**others, **token, "CHAOS_MM_HOST_CONTROL_URL": host.running.control_url})
    with started(SLEEPER) as victim:
        inject = activity("inject_process_pause", pid=victim.pid, ttl_seconds=300, keepalive_seconds=KEEPALIVE_SECONDS)
        release = activity("release", lease="process_pause")
        probe = activity("points_ready", type="probe", module="probes", points="host")
        ready = {**probe, "tolerance": activity("at_least", type="probe", module="tolerances", threshold=1.0)}
        body = experiment(inject, hold(120.0), rollbacks=[release])
        body["steady-state-hypothesis"] = {"title": "the host answers", "probes": [ready]}
        process = chaos.start("run", body)
        try:
            wait_for(lambda: state(victim.pid) == "T" or process.popen.poll() is not None, "it is paused", 60.0)
            assert state(victim.pid) == "T", process.output.read_text()
            _kill(process.popen)
            wait_for(lambda: state(victim.pid) in ("R", "S"), "it goes on", KEEPALIVE_SECONDS + 1.0)
        finally:
            _kill(process.popen)
    wait_for(lambda: host.client.lease("process_pause")["state"] == "ended", "its undo ends")
    lease = host.client.lease("process_pause")
    assert (lease["ended_by"], lease["undo"]["proven"]) == ("keepalive", True)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(10)
