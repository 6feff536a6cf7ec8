"""A whole demo of its own, real experiments in it, and SIGKILLs at random moments."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos_mm.control.client import ControlClient
from chaos_mm.report import render
from tests.demos import OwnDemo
from tests.edge.chaos import REPOSITORY, wait_for

VICTIMS = ("chaos", "proxy", "load", "target")
PHASE_SECONDS = 2.0
RUN_SECONDS = 3 * PHASE_SECONDS + 2.0  # with what the toolkit takes to begin and to end
KEEPALIVE_SECONDS = 5.0
SLACK = 3.0  # on the wall clock; the point's own stamps get none but the promised second
BIN = Path(sys.executable).parent
# The demo gives a service up that dies five times in a minute; four it must bear.
DEATHS, DEATHS_SECONDS = 4, 61.0 + RUN_SECONDS  # counted from the start of a round, the kill comes later


@dataclass(frozen=True)
class Round:
    """One run and whom to kill how long after its start."""

    number: int
    victim: str
    after_seconds: float


def rounds(count: int, targets: int, seed: int) -> list[Round]:
    """``count`` rounds at random moments, ``targets`` of them on the target, the others shared evenly."""
    rng = random.Random(seed)
    others = [VICTIMS[number % 3] for number in range(count - targets)]
    victims = [*others, *["target"] * targets]
    rng.shuffle(victims)
    return [Round(number, victim, rng.uniform(0.0, RUN_SECONDS)) for number, victim in enumerate(victims)]


class Arena:
    """The demo, and ``chaos`` pointed at it."""

    def __init__(self, folder: Path) -> None:
        self.demo = OwnDemo(folder)
        lengths = {f"CHAOS_MM_{phase}_SECONDS": str(PHASE_SECONDS) for phase in ("BASELINE", "FAULT", "RECOVERY")}
        objectives = {"CHAOS_MM_OBJECTIVES": str(_quick_objectives(folder))}
        self._environment = {**self.demo.environment, **lengths, **objectives}
        exports = self.demo.exports
        self.control = ControlClient(
            exports["CHAOS_MM_PROXY_CONTROL_URL"], token_file=Path(exports["CHAOS_MM_TOKEN_FILE"])
        )
        self.experiment = _quick_experiment(folder)
        self._deaths: dict[str, deque[float]] = {victim: deque(maxlen=DEATHS) for victim in VICTIMS}

    def play(self, one: Round) -> "Aftermath":
        """Start a run, kill, wait until everybody who should be there is back and the run is over."""
        self._spare(one.victim)
        folder, reports = self.demo.folder, self.demo.reports
        known = set(reports.glob("*Z-*"))
        log = folder / f"chaos-{one.number}.log"
        argv = [str(BIN / "chaos"), "--no-version-check", "--log-file", str(log), "run"]
        argv += ["--journal-path", str(folder / f"journal-{one.number}.json"), str(self.experiment)]
        with log.with_suffix(".out").open("w") as output:
            run = subprocess.Popen(argv, cwd=folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            time.sleep(one.after_seconds)
            killed_at = time.time()
            victim = run.pid if one.victim == "chaos" else self._pid(one.victim)
            self._kill(victim, gone_is_fine=one.victim == "chaos")
            status = run.wait(RUN_SECONDS * SLACK * 2)
        finally:
            run.kill()
            run.wait()
        wait_for(lambda: self._whole_without(victim), 60.0)
        wait_for(lambda: not self._live(), (KEEPALIVE_SECONDS + 1.0) * SLACK)
        made = sorted(set(reports.glob("*Z-*")) - known)
        return Aftermath(one, status, killed_at, made, self.control.leases(), log.with_suffix(".out").read_text())

    def _spare(self, victim: str) -> None:
        deaths, now = self._deaths[victim], time.monotonic()
        if victim != "chaos" and len(deaths) == DEATHS and now - deaths[0] < DEATHS_SECONDS:
            time.sleep(DEATHS_SECONDS - (now - deaths[0]))
        deaths.append(time.monotonic())

    def _live(self) -> list[dict[str, Any]]:
        return [lease for lease in self.control.leases() if lease["state"] == "live"]

    def _pid(self, service: str) -> int:
        return next(one.pid for one in self.demo.state().services if one.name == service)

    def _whole_without(self, victim: int) -> bool:
        """Everything is up, and the supervisor knows by now that the victim is not part of it any more."""
        state = self.demo.state()
        if victim in {one.pid for one in state.services}:
            return False
        return state.state == "up" and all(one.state == "up" and _alive(one.pid) for one in state.services)

    def _kill(self, pid: int, gone_is_fine: bool) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            assert gone_is_fine, f"process {pid} was gone before it was killed"


@dataclass(frozen=True)
class Aftermath:
    """What a kill left."""

    round: Round
    status: int
    killed_at: float
    folders: Sequence[Path]
    leases: Sequence[Mapping[str, Any]]
    output: str

    def troubles(self) -> list[str]:
        """Everything that must not be; empty when all is well."""
        found = [f"{len(self.folders)} folders of one run"] if len(self.folders) > 1 else []
        found += [f"lease outlived its run: {text}" for text in map(_overdue, self.leases) if text]
        for folder in self.folders:
            found += self._of_folder(folder)
        if self.round.victim == "chaos" and self.status not in (-signal.SIGKILL, *range(6)):
            found.append(f"exit status {self.status}")
        return found

    def _of_folder(self, folder: Path) -> list[str]:
        page = render.run(folder).read_text(encoding="utf-8")
        found = [] if "</html>" in page else ["the report is not whole"]
        events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines(keepends=True)[:-1]]
        began, ended = _at(events, "baseline"), _at(events, "end")
        word = _word(folder)
        inside = began is not None and self.killed_at > began and (ended is None or self.killed_at < ended)
        # Traffic survives the loss of a target for less than a second, so such a run may well have held.
        if word == "passed" and inside and self.round.victim != "target":
            found.append(f"passed, though the {self.round.victim} was killed in the middle of it")
        if word == "" and self.round.victim != "chaos":
            found.append("no verdict, though chaos was not killed")
        if word and not (self.round.victim == "chaos" and self.status < 0):
            found += self._of_status(folder)
        return found

    def _of_status(self, folder: Path) -> list[str]:
        verdict = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
        wanted = verdict["exit_code"]
        found = [] if self.status == wanted else [f"exit status {self.status}, the verdict says {wanted}"]
        residue = verdict["residue"]
        return found + (["residue"] if residue["live"] and self.round.victim != "proxy" else [])


def _overdue(lease: Mapping[str, Any]) -> str:
    """A lease that ended by silence did so by its keepalive and one second, on the point's own clock."""
    if lease["state"] == "live":
        return f"{lease['name']} of {lease['owner']} lives"
    late = lease["ended_at"] - lease["last_keepalive_at"] - KEEPALIVE_SECONDS
    return f"{lease['name']} ended {late:.2f} s late" if lease["ended_by"] == "keepalive" and late > 1.0 else ""


def _at(events: Sequence[Mapping[str, Any]], phase: str) -> float | None:
    stamps = [one["at"] for one in events if one["event"] == "phase" and one["phase"] == phase]
    return datetime.fromisoformat(stamps[0]).timestamp() if stamps else None


def _word(folder: Path) -> str:
    path = folder / "verdict.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["verdict"]) if path.exists() else ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _quick_objectives(folder: Path) -> Path:
    """The shipped objectives over windows of the phases' length, with the samples that gives."""
    made = folder / "objectives"
    made.mkdir()
    for path in (REPOSITORY / "experiments/objectives").glob("*.yaml"):
        text = re.sub(r'window-seconds: "\d+"', f'window-seconds: "{PHASE_SECONDS:g}"', path.read_text())
        (made / path.name).write_text(re.sub(r'min-samples: "\d+"', 'min-samples: "1"', text))
    return made


def _quick_experiment(folder: Path) -> Path:
    body = json.loads((REPOSITORY / "experiments/image-noise.json").read_text())
    body["method"][0]["provider"]["arguments"]["keepalive_seconds"] = KEEPALIVE_SECONDS
    made = folder / "image-noise.json"
    made.write_text(json.dumps(body))
    return made
