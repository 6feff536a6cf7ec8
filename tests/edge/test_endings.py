"""How whole runs of real ``chaos`` processes end when something else dies, crashes, or was never exercised."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.edge.chaos import CONTROL, Chaos, activity, armed, experiment, hold, injection, wait_for
from tests.edge.conftest import BarePoint

pytestmark = pytest.mark.runs

INJECT = injection(sigma=0.1)
RELEASE = activity("release", lease="image_noise")


def test_a_crash_of_the_engine_leaves_a_folder_and_a_strict_journal(chaos: Chaos, point: BarePoint) -> None:
    """The toolkit writes no journal then, and plays no rollbacks."""
    probe = {"type": "probe", "name": "p", "provider": {"type": "process", "path": "true"}}
    crashing = {**probe, "tolerance": {"type": "regex", "pattern": "(", "target": "stdout"}}
    gate = {"title": "crashes", "probes": [crashing]}
    got = chaos.run(experiment(INJECT, RELEASE, **{"steady-state-hypothesis": gate}), "--no-validation")
    assert "Traceback" in got.output
    assert (got.status, got.word) == (4, "error"), got.output
    assert got.journal is not None and got.journal["status"] == "aborted"
    (verdict,) = chaos.verdicts()
    assert verdict["reasons"][0]["reason"].startswith("the toolkit crashed: ")
    kept = {path.name for path in (chaos.folder / "reports" / verdict["folder"]).iterdir()}
    assert kept >= {"events.jsonl", "journal.json", "verdict.json", "index.html"}
    assert not point.book.armed


RUNNER = """
import os, subprocess, sys
environment = {**os.environ, "CHAOS_MM_RUNNER": str(os.getpid()) if sys.argv[1] == "runner" else "1"}
child = subprocess.Popen(sys.argv[2:], env=environment)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize("kind", ["runner", "shell"])
def test_a_run_ends_with_its_runner_and_survives_its_shell(chaos: Chaos, point: BarePoint, kind: str) -> None:
    source = chaos.folder / "experiment.json"
    source.write_text(json.dumps(experiment(INJECT, hold(60 if kind == "runner" else 4), RELEASE)))
    journal, output = chaos.folder / "journal.json", chaos.folder / "output.txt"
    argv = [sys.executable, "-m", "chaostoolkit", "run", "--journal-path", str(journal), str(source)]
    with output.open("w") as stream:
        parent = subprocess.Popen(
            [sys.executable, "-c", RUNNER, kind, *argv],
            cwd=chaos.folder,
            env=chaos.environment,
            stdout=subprocess.PIPE,
            stderr=stream,
        )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            wait_for(lambda: point.book.armed, 60)
            killed = point.book.clock()
            parent.kill()
            parent.wait()
            wait_for(lambda: not point.book.armed, 30)
            wait_for(journal.exists, 30)
            wait_for(lambda: chaos.verdicts(), 30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    (lease,) = point.book.leases()
    (verdict,) = chaos.verdicts()
    assert lease.ended_by == "release"
    if kind == "runner":
        assert lease.ended_at - killed < 3.0
        assert (verdict["verdict"], "is gone" in verdict["reasons"][0]["reason"]) == ("interrupted", True)
    else:
        assert verdict["verdict"] == "passed"


def test_a_target_that_does_not_come_back(chaos: Chaos, point: BarePoint) -> None:
    target = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=target.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    chaos.environment["CHAOS_MM_TARGET_URL"] = f"http://127.0.0.1:{target.server_port}"
    process = chaos.start("run", experiment(INJECT, hold(1), RELEASE))
    armed(process, point)
    target.shutdown()
    thread.join()
    target.server_close()
    got = process.finish()
    assert (got.status, got.word) == (5, "not_restored"), got.output
    assert chaos.verdicts()[0]["reasons"][0]["reason"].startswith("the target did not come back")


def test_an_old_journal_is_not_taken_for_that_of_a_run_that_was_killed(chaos: Chaos, point: BarePoint) -> None:
    old = chaos.folder / "journal-1.json"
    old.write_text('{"status": "completed"}')
    process = chaos.start("run", experiment(INJECT, hold(60), RELEASE))
    armed(process, point)
    process.popen.kill()
    assert process.finish().journal is None
    assert (chaos.folder / "journal-1.json.previous").read_text() == '{"status": "completed"}'


def test_other_words_of_a_run_that_injects(chaos: Chaos, point: BarePoint) -> None:
    point.canaries = False
    nothing = chaos.run(experiment(INJECT, hold(0.3), RELEASE))
    assert (nothing.status, nothing.word) == (3, "not_exercised")
    point.canaries = True
    little = {**CONTROL, "provider": {**CONTROL["provider"], "arguments": {"min_achieved": {"psnr_db": 30}}}}
    assert chaos.run(experiment(INJECT, hold(0.3), RELEASE, controls=[little])).word == "not_exercised"
    unmeasured = experiment(INJECT, hold(0.3), RELEASE)
    del unmeasured["steady-state-hypothesis"]
    assert chaos.run(unmeasured).word == "no_data"
    left = {**CONTROL, "provider": {**CONTROL["provider"], "arguments": {"exit_code": False}}}
    own = chaos.run(experiment(INJECT, hold(0.3), RELEASE, controls=[left]))
    assert (own.status, own.word) == (0, "passed")


BREAK = """
from chaos_mm.controls import {module}


def broken(*given, **named):
    raise RuntimeError("a mistake of ours")


{module}.{where} = broken
"""


@pytest.mark.parametrize(
    ("module", "where", "injected"),
    [
        ("armed", "refusals", False),
        ("armed", "chosen_objectives", False),
        ("armed", "Armed.begin", False),
        ("armed", "Armed.begin_method", False),
        ("armed", "Armed.before_activity", False),
        ("armed", "Armed._follow", True),
        ("armed", "Armed.unwind", True),
        ("phases", "Phases.enter", False),
        ("sampler", "Sampler.look", False),
        ("ending", "residue", True),
    ],
)
def test_a_mistake_of_ours_is_an_error_and_leaves_nothing(
    chaos: Chaos, point: BarePoint, module: str, where: str, injected: bool
) -> None:
    """The toolkit swallows what a control raises; a run that nobody can vouch for must not end well all the same."""
    (chaos.folder / "sitecustomize.py").write_text(BREAK.format(module=module, where=where))
    chaos.environment["PYTHONPATH"] = f"{chaos.folder}{os.pathsep}{chaos.environment['PYTHONPATH']}"
    got = chaos.run(experiment(INJECT, hold(2.5), RELEASE))
    assert (got.status, got.word) == (4, "error"), got.output
    assert "a mistake of ours" in got.output
    assert not point.book.armed
    assert bool(point.book.leases()) == injected
    (verdict,) = chaos.verdicts()
    assert verdict["verdict"] == "error"
