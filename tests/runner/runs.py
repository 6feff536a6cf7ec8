"""Runs made up for the tests: verdicts, events, and programs that play a run."""

import json
import sys
from pathlib import Path
from typing import Any

from chaos_mm.runner.planned import Ended, Planned


def answer(value: float | None, **more: Any) -> dict[str, Any]:
    """A probe's answer; None: no data."""
    return {"measured": value is not None, "value": value or 0.0, "samples": 40, **more}


def objective(name: str, threshold: float, comparison: str = "gte", **phases: float | None) -> dict[str, Any]:
    """One of verdict.json's objectives, with its worst window in each phase."""
    found = {phase: answer(value) for phase, value in phases.items()}
    return {"name": name, "sli": name, "comparison": comparison, "threshold": threshold, "named": True, "phases": found}


def verdict(word: str = "passed", *objectives: dict[str, Any], **more: Any) -> dict[str, Any]:
    """verdict.json of a run that hit 38 of 40."""
    hits = {"matched": 40, "applied": 38, "errored": 0}
    lease = {"name": "image_noise", "fault": "image_noise", **hits}
    return {"verdict": word, "hits": hits, "leases": [lease], "objectives": list(objectives), **more}


def ended(word: str = "passed", status: int = 0, expect: str = "", found: Any = None, **planned: Any) -> Ended:
    """A run that is over."""
    one = Planned(**{"source": "some/image-noise.json", "expect": expect, **planned})
    body = verdict(word) if found is None else found
    return Ended(one, Path("reports/20261130T120000Z-image-noise-abcdef").absolute(), status, word, body)


def events_of(*events: dict[str, Any]) -> str:
    """As in events.jsonl."""
    return "".join(json.dumps(event) + "\n" for event in events)


def player(folder: Path, name: str, body: str) -> str:
    """A foreign experiment whose one action runs ``body`` (Python; ``folder`` is the run's, ``write(name, value)``
    writes JSON there) in the toolkit's own process. Its path."""
    module = f"player_{name.replace('-', '_')}"
    text = (
        "import json, os, pathlib, signal, sys, time\n"
        "folder = pathlib.Path(os.environ['CHAOS_MM_RUN_FOLDER'])\n"
        "def write(name, value): (folder / name).write_text(json.dumps(value) + '\\n')\n"
        "def play():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    )
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    provider = {"type": "python", "module": module, "func": "play"}
    action = {"type": "action", "name": "play", "provider": provider}
    path = folder / f"{name}.json"
    path.write_text(
        json.dumps({"title": name, "description": "-", "method": [action], "rollbacks": []}), encoding="utf-8"
    )
    return str(path)


def quiet_program(code: str) -> list[str]:
    """A Python that runs ``code``."""
    return [sys.executable, "-c", code]
