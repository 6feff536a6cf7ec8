"""A bare ``chaos-mm demo``: everything up, three experiments by real ``chaos run``, everything down, a table.

It says what was injected, what was hit and what was measured. It fails when a run did, or when one hit nothing; whether
the service did well is not judged here.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_mm.control.state import state_dir
from chaos_mm.demo import lifecycle
from chaos_mm.demo.tether import tethered
from chaos_mm.sli.objectives import packaged_dir

__all__ = ["EXPERIMENTS", "Outcome", "chaos_command", "own_summary", "run_all", "run_one"]

EXPERIMENTS = ("image-noise", "audio-spectral-mask", "text-token-truncation")
_PHASES = ("baseline", "fault", "recovery")
_SHOWN = ("canary_exact", "bystander_ok")
_STOP_WITHIN_SECONDS = 20.0


@dataclass
class Outcome:
    """One ``chaos run``: its exit status and the summary that the verdict control left (empty when it left none)."""

    experiment: str
    status: int
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def lease(self) -> dict[str, Any]:
        """The lease's last evidence."""
        return self.summary.get("lease") or {}

    @property
    def trouble(self) -> str:
        """What went wrong with the run itself, in words; empty when nothing did."""
        if self.status != 0:
            return f"chaos run ended with exit status {self.status}"
        if not self.summary:
            return "the run left no summary"
        if not self.lease.get("applied"):
            return "no request was hit"
        ended_by = self.lease.get("ended_by")
        if self.lease.get("released") is False:
            return "the lease was not released"
        return "" if ended_by == "release" else f"the lease ended by {ended_by!r}, not by release"


def run_all(base_port: int, show: Callable[[str], None]) -> int:
    """The whole demo; the exit status: 0, or 1 when a run went wrong. An interrupt brings everything down first."""
    begun = time.monotonic()
    with _ending_on_signals():
        show("Bringing the demo up: target, proxy and load ...")
        demo = lifecycle.up(base_port, show, attached=True)
        try:
            environment = {**os.environ, **demo.state.exports, "CHAOS_MM_OBJECTIVES": str(packaged_dir())}
            outcomes = [run_one(name, environment, show) for name in EXPERIMENTS]
        finally:
            _bring_down(demo, show)
    for line in report(outcomes):
        show(line)
    show(f"\nThe demo took {time.monotonic() - begun:.0f} s.")
    return 1 if any(outcome.trouble for outcome in outcomes) else 0


def run_one(name: str, environment: dict[str, str], show: Callable[[str], None]) -> Outcome:
    """One experiment by ``chaos run``, each of its lines shown as it comes."""
    folder = state_dir() / "demo-runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    source = packaged_dir().parent / f"{name}.json"
    argv = [*chaos_command(), "--no-version-check", "--log-file", str(folder / f"{name}.log")]
    argv += ["run", "--journal-path", str(folder / f"{name}.journal.json"), str(source)]
    show(f"\n$ chaos run {source}")
    before = set(_summaries())
    status, pid = _follow(argv, folder, environment, lambda line: show(f"  {line}"))
    return Outcome(name, status, own_summary(set(_summaries()) - before, pid))


def own_summary(paths: Iterable[Path], pid: int) -> dict[str, Any]:
    """Of the summaries written meanwhile that of the process ``pid``: others may run experiments too. Empty: none."""
    found: list[dict[str, Any]] = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return next((one for one in found if one.get("pid") == pid), {})


def chaos_command() -> list[str]:
    """The ``chaos`` of this installation: beside this Python, else on PATH, else as a module."""
    beside = Path(sys.executable).with_name("chaos")
    found = str(beside) if beside.is_file() else shutil.which("chaos")
    return [found] if found else [sys.executable, "-P", "-m", "chaostoolkit"]


def report(outcomes: list[Outcome]) -> Iterator[str]:
    """The closing table, in words a person can read down."""
    for outcome in outcomes:
        lease, phases = outcome.lease, outcome.summary.get("phases", {})
        yield f"\n{outcome.experiment}"
        if lease:
            achieved = ", ".join(f"{key} {t['mean']:.4g}" for key, t in sorted(lease.get("achieved", {}).items()))
            parameters = ", ".join(f"{key}={value}" for key, value in lease.get("params", {}).items())
            yield f"  injected   {outcome.summary['fault']} ({parameters})"
            yield f"  hit        {lease.get('applied')} of {lease.get('matched')} matching requests"
            yield f"  achieved   {achieved or '-'}"
        for name in _SHOWN:
            measured = "   ".join(f"{phase} {_value(phases.get(phase, {}).get(name))}" for phase in _PHASES)
            yield f"  {name.ljust(12)} {measured}"
        if outcome.trouble:
            yield f"  WENT WRONG: {outcome.trouble}"


def _value(answer: dict[str, Any] | None) -> str:
    if not answer or not answer.get("measured"):
        return "no data"
    return f"{answer['value']:.3f} (n={answer['samples']})"


def _summaries() -> Iterator[Path]:
    return (state_dir() / "runs").glob("*.json")


def _follow(argv: list[str], folder: Path, environment: dict[str, str], line: Callable[[str], None]) -> tuple[int, int]:
    """Run a command in a session of its own (a Ctrl-C reaches it through us, once), showing its lines.

    Its exit status and its pid, which the tether keeps.
    """
    process = subprocess.Popen(
        tethered(argv),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            for text in process.stdout:
                line(text.rstrip("\n"))
            return process.wait(), process.pid
        except BaseException:
            process.terminate()
            try:
                process.wait(_STOP_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise


def _bring_down(demo: lifecycle.Demo, show: Callable[[str], None]) -> None:
    if not demo.mine:
        show("\nThe demo was up before; it stays up.")
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it running
    show("\nBringing the demo down ...")
    lifecycle.down(show)
    demo.let_go()


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """TERM and HUP end us as Ctrl-C does: by an exception, so that everything is brought down on the way out."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
