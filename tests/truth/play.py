"""Plays one row: a scripted load and point, a real ``chaos run`` process, and what happens meanwhile."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.edge.upstream import Upstream
from tests.truth.load import ScriptedLoad
from tests.truth.point import FOREIGN, PointScript, ScriptedPoint
from tests.truth.scenario import Scenario, Step

REPOSITORY = Path(__file__).parents[2]
OBJECTIVES = REPOSITORY / "tests/truth/objectives"
CLOSED = "http://127.0.0.1:9"  # discard: nobody listens there
_SEEN_SECONDS = 45.0
_END_SECONDS = 60.0


@dataclass
class Played:
    """What came of a row. ``leases``: the run's own, as JSON of the point, whichever process of it served them."""

    scenario: Scenario
    folder: Path
    status: int
    output: str
    report: str
    seconds: float
    leases: list[dict[str, Any]] = field(default_factory=list)
    foreign_lives: bool = False
    silent_at: float | None = None

    @property
    def journal(self) -> dict[str, Any] | None:
        """The toolkit's own journal, read strictly; None when there is none."""
        path = Path(_filled(self.scenario.journal_path, self.folder))
        return strictly(path.read_text()) if path.is_file() and path.stat().st_size else None

    @property
    def run_folder(self) -> Path | None:
        """The run's folder; None when there is none. More than one is an error."""
        found = [path for path in (self.folder / "reports").glob("*/") if path.is_dir()]
        assert len(found) <= 1, found
        return found[0] if found else None


def strictly(text: str) -> Any:
    """JSON as the standard has it: no NaN, no infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"not strict JSON: it holds {constant}")

    return json.loads(text, parse_constant=refuse)


class Play:
    """One row under way in a folder of its own."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        folder.chmod(0o700)
        token = secrets.token_urlsafe(32)
        (folder / "token").touch(0o600)
        (folder / "token").write_text(token)
        for name, text in scenario.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self._silent_at: float | None = None
        self.points = [ScriptedPoint(token, scenario.point or PointScript())]
        if scenario.point is None:
            self.points[0].close()
        self.load = ScriptedLoad(token, scenario.plays, self._canary, str(OBJECTIVES))
        if scenario.load == "absent":
            self.load.close()
        self.target = Upstream() if scenario.target else None

    def close(self) -> None:
        """End the load and every point."""
        self.load.close()
        for point in self.points:
            point.close()
        self._close_target()

    def run(self) -> Played:
        """Start the process, do the steps, wait for its end, look at what is left."""
        began = time.monotonic()
        out, err = self.folder / "stdout.txt", self.folder / "stderr.txt"
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                self._argv(), cwd=self.folder, env=self._environment(), stdout=stdout, stderr=stderr
            )
        try:
            for step in self.scenario.steps:
                self._wait_for(step.seen, process)
                time.sleep(step.delay)
                self._do(step, process)
            status = process.wait(_END_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        seconds = time.monotonic() - began
        if self.scenario.expected.gone == "keepalive":
            wait_until(lambda: not any(one["state"] == "live" for one in self._leases()), "no lease lives", 15.0)
        told = out.read_text()
        foreign = [one for point in self.points for one in point.book.live if one.spec.owner == FOREIGN]
        return Played(
            self.scenario,
            self.folder,
            status,
            told + err.read_text(),
            told,
            seconds,
            self._leases(),
            bool(foreign),
            self._silent_at,
        )

    def _close_target(self) -> None:
        if self.target is not None:
            self.target.close()
            self.target = None

    def _canary(self) -> None:
        for point in self.points:
            point.canary()

    def _leases(self) -> list[dict[str, Any]]:
        found = [(point, lease) for point in self.points for lease in point.book.leases()]
        return [lease.to_json(point.book.clock()) for point, lease in found if lease.spec.owner != FOREIGN]

    def _argv(self) -> list[str]:
        source = self.folder / "experiment.json"
        source.write_text(json.dumps(self.scenario.body))
        log = str(self.folder / "chaostoolkit.log")
        argv = [*self.scenario.prefix, sys.executable, "-m", "chaostoolkit", "--no-version-check", "--log-file", log]
        argv += ["run", "--journal-path", self.scenario.journal_path, *self.scenario.options]
        argv += ["--output", "agent"] if newest() else []
        return [_filled(word, self.folder) for word in [*argv, str(source)]]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")}
        paths = [str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        ours = {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "HOME": str(self.folder),
            "CHAOS_MM_STATE_DIR": str(self.folder),
            "CHAOS_MM_REPORTS": str(self.folder / "reports"),
            "CHAOS_MM_OBJECTIVES": str(OBJECTIVES),
            "CHAOS_MM_TARGET_URL": self.target.url if self.target else CLOSED,
            **{f"CHAOS_MM_{name}_CONTROL_URL": CLOSED for name in ("PROXY", "AGENT", "HOST")},
            f"CHAOS_MM_{self.points[0].script.kind.value.upper()}_CONTROL_URL": self.points[0].url,
            "CHAOS_MM_LOAD_CONTROL_URL": self.load.url,
        }
        given = {
            name: _filled(value, self.folder).replace("{path}", ours["PYTHONPATH"])
            for name, value in self.scenario.environment.items()
        }
        return {**kept, **ours, **given}

    def _wait_for(self, seen: str, process: "subprocess.Popen[bytes]") -> None:
        def holds() -> bool:
            if seen == "start":
                return True
            if seen == "armed":
                return any(one["state"] == "live" for one in self._leases())
            if seen == "ended":
                return bool(self._leases()) and not any(one["state"] == "live" for one in self._leases())
            return seen in self._output()

        wait_until(lambda: holds() or process.poll() is not None, f"{seen!r}", _SEEN_SECONDS, self._output)
        assert holds(), f"chaos ended before {seen!r}:\n{self._output()[-3000:]}"

    def _output(self) -> str:
        return (self.folder / "stdout.txt").read_text() + (self.folder / "stderr.txt").read_text()

    def _do(self, step: Step, process: "subprocess.Popen[bytes]") -> None:
        if step.do == "signal":
            self._silent_at = self.points[-1].book.clock()
            if process.poll() is None:
                os.kill(process.pid, getattr(signal, step.what))
        elif step.do == "close-point":
            self.points[-1].close()
        elif step.do == "replace-point":
            self.points.append(self.points[-1].replaced())
        elif step.do == "stop-point":
            self.points[-1].client.stop()
        elif step.do == "close-load":
            self.load.close()
        elif step.do == "close-target":
            self._close_target()
        elif step.do == "replace-target":
            assert self.target is not None
            self.target.replace()
        elif step.do == "remove":
            shutil.rmtree(_filled(step.what, self.folder))


def newest() -> bool:
    """Whether this Python has the toolkit whose reports an agent can read."""
    import importlib.metadata

    version = importlib.metadata.version("chaostoolkit").split(".")
    return (int(version[0]), int(version[1])) >= (1, 21)


def wait_until(holds: Callable[[], bool], what: str, seconds: float, told: Callable[[], str] = lambda: "") -> None:
    """Poll until ``holds()``; AssertionError naming ``what`` when that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}\n{told()[-3000:]}"
        time.sleep(0.02)


def _filled(text: str, folder: Path) -> str:
    return text.replace("{folder}", str(folder))
