"""Real ``chaos`` processes for the tests, and small experiments for them to play."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
CONTROL: dict[str, Any] = {"name": "verdict", "provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}


def activity(func: str, *, type: str = "action", module: str = "actions", **arguments: Any) -> dict[str, Any]:
    """One activity of ours."""
    provider = {"type": "python", "module": f"chaos_mm.{module}", "func": func, "arguments": arguments}
    return {"type": type, "name": func, "provider": provider}


def injection(fault: str = "image_noise", **arguments: Any) -> dict[str, Any]:
    """An injection as a file must have it."""
    return activity(f"inject_{fault}", **{"ttl_seconds": 300, **arguments})


def hold(seconds: float) -> dict[str, Any]:
    """Wait."""
    return activity("hold", seconds=seconds)


# What a run without a load can measure: something, so that it may pass.
STEADY = {
    "title": "the proxy answers",
    "probes": [
        {
            **activity("points_ready", type="probe", module="probes", points="proxy"),
            "tolerance": activity("at_least", type="probe", module="tolerances", threshold=1.0),
        }
    ],
}


def experiment(*method: dict[str, Any], control: bool = True, **more: Any) -> dict[str, Any]:
    """An experiment with the given method, rollbacks and strategies as a file must have them, and our control."""
    body = {
        "title": "a test",
        "description": "a test",
        "method": list(method),
        "rollbacks": [activity("release", lease="image_noise")],
        "runtime": {"rollbacks": {"strategy": "always"}},
        "steady-state-hypothesis": STEADY,
        **more,
    }
    return {"controls": [CONTROL], **body} if control else body


@dataclass
class Outcome:
    """A finished ``chaos`` process."""

    status: int
    output: str
    journal: dict[str, Any] | None

    @property
    def word(self) -> str:
        """The verdict, as the journal has it; "" without one."""
        return str(((self.journal or {}).get("verdict") or {}).get("verdict", ""))

    def activity(self, name: str) -> dict[str, Any]:
        """The journal's entry of the first activity of that name, in the method or the rollbacks."""
        assert self.journal is not None, self.output
        entries = [*self.journal["run"], *self.journal["rollbacks"]]
        return next(entry for entry in entries if entry["activity"]["name"] == name)


class Chaos:
    """Starts ``chaos`` in a folder of its own, pointed at the given control URLs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        paths = [str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")},
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "HOME": str(folder),
            "CHAOS_MM_STATE_DIR": str(folder),
            **environment,
        }
        self.flags: tuple[str, ...] = ("--no-version-check",)
        self._count = 0

    def start(self, command: str, body: dict[str, Any] | Path, *options: str) -> "Process":
        """``chaos COMMAND OPTIONS FILE``, not waited for."""
        self._count += 1
        source = body if isinstance(body, Path) else self.folder / f"experiment-{self._count}.json"
        if not isinstance(body, Path):
            source.write_text(json.dumps(body))
        journal = self.folder / f"journal-{self._count}.json"
        log = self.folder / f"chaos-{self._count}.log"
        argv = [sys.executable, "-m", "chaostoolkit", *self.flags, "--log-file", str(log), command]
        argv += ["--journal-path", str(journal)] if command == "run" else []
        output = self.folder / f"output-{self._count}.txt"
        with output.open("w") as stream:
            process = subprocess.Popen(
                [*argv, *options, str(source)],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        return Process(process, output, journal)

    def run(self, body: dict[str, Any] | Path, *options: str, seconds: float = 60.0) -> Outcome:
        """``chaos run``, to its end."""
        return self.start("run", body, *options).finish(seconds)

    def validate(self, body: dict[str, Any] | Path) -> Outcome:
        """``chaos validate``."""
        return self.start("validate", body).finish(60.0)

    def verdicts(self) -> list[dict[str, Any]]:
        """What the runs left, oldest first."""
        paths = sorted((self.folder / "reports").glob("*/verdict.json"), key=lambda path: path.stat().st_mtime)
        return [json.loads(path.read_text(), parse_constant=_refuse) for path in paths]


@dataclass
class Process:
    """A ``chaos`` process under way."""

    popen: "subprocess.Popen[bytes]"
    output: Path
    journal: Path

    def finish(self, seconds: float = 60.0) -> Outcome:
        """Wait for it; killed by pid when it takes too long."""
        try:
            status = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"chaos did not end within {seconds} s:\n{self.output.read_text()[-3000:]}") from None
        journal = json.loads(self.journal.read_text(), parse_constant=_refuse) if self.journal.exists() else None
        return Outcome(status, self.output.read_text(), journal)


def _refuse(constant: str) -> Any:
    raise AssertionError(f"the journal is not strict JSON: it holds {constant}")


def armed(process: Process, point: Any) -> None:
    """Wait until the run has injected at that point."""
    try:
        wait_for(lambda: point.book.armed)
    except AssertionError:
        raise AssertionError(process.output.read_text()[-3000:]) from None


def wait_for(holds: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Poll until ``holds()`` is true; its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"did not come true within {seconds} s")
