"""Plays the shipped experiments of ``experiments/vllm`` by ``chaos run`` against a real vLLM with a load of ours.

A model of random weights repeats no code, so the load judges each canary by the model's own clean answer of the
baseline (``--canary-reference baseline``): greedy answers of one model are the same in whatever process computes them.
Objectives are the shipped ones, with the bounds changed that a test says.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import processes
from tests.agent.vllm.server import Server
from tests.edge.chaos import REPOSITORY, Chaos, Outcome

__all__ = ["Ran", "Stage", "bounds", "stage"]

EXPERIMENTS = REPOSITORY / "experiments" / "vllm"
SHIPPED = REPOSITORY / "experiments" / "objectives"
RATE = 6.0
LOAD = {
    "model": "tiny",
    "canary-reference": "baseline",
    "canary-set": "6",
    "mix": "image=0.5,text=0.5",
    "wording": "plain",
    "arrivals": "constant",
    "background-rate": str(RATE),
    "bystanders": "0.4",
    "timeout": "5",
}
Bounds = Mapping[str, float]
Seconds = tuple[float, float, float]


def bounds(window_seconds: float, least: float) -> Bounds:
    """Of an objective: its window, and the share of requests in it that must be good."""
    return {"window": window_seconds, "least": least}


@dataclass
class Ran:
    """A run that has ended: what ``chaos run`` ended with, and its verdict."""

    outcome: Outcome
    verdict: dict[str, Any]

    @property
    def word(self) -> str:
        """The verdict's word."""
        return str(self.verdict["verdict"])

    @property
    def lease(self) -> dict[str, Any]:
        """Evidence of its only lease."""
        (found,) = self.verdict["leases"]
        assert isinstance(found, dict)
        return found

    def value(self, phase: str, sli: str) -> float:
        """An SLI over a whole phase."""
        found = self.verdict["slis"][phase][sli]
        assert found["measured"], found
        return float(found["value"])

    def __str__(self) -> str:
        return f"{self.outcome.status} {self.verdict['reasons']}\n{self.outcome.output[-6000:]}"


@dataclass
class Stage:
    """A load that sends to ``server``; ``folder`` is the runs'."""

    server: Server
    load: processes.Running
    folder: Path

    def run(
        self, name: str, *options: str, changed: Mapping[str, Bounds] | None = None, seconds: Seconds = (10, 10, 10)
    ) -> Ran:
        """``chaos run experiments/vllm/NAME.json`` with phases of so many ``seconds``, to its end.

        Objectives are the shipped ones as they are, or those alone that are ``changed``, with these bounds.
        """
        _write(self.folder / "objectives", changed)
        chaos = Chaos(self.folder, self._environment(seconds))
        outcome = chaos.run(EXPERIMENTS / f"{name}.json", *options, seconds=sum(seconds) + 120)
        return Ran(outcome, chaos.verdicts()[-1])

    def _environment(self, seconds: Seconds) -> dict[str, str]:
        phases = zip(("BASELINE", "FAULT", "RECOVERY"), seconds, strict=True)
        return {
            "CHAOS_MM_TARGET_URL": self.server.url,
            "CHAOS_MM_TARGET_MODEL": LOAD["model"],
            "CHAOS_MM_AGENT_CONTROL_URL": self.server.control_url,
            "CHAOS_MM_LOAD_CONTROL_URL": self.load.control_url,
            "CHAOS_MM_TOKEN_FILE": str(self.server.state / "token"),
            "CHAOS_MM_OBJECTIVES": str(self.folder / "objectives"),
            **{f"CHAOS_MM_{phase}_SECONDS": f"{length:g}" for phase, length in phases},
        }


@contextmanager
def stage(server: Server, folder: Path, **options: str) -> Iterator[Stage]:
    """A load against the server; ``options`` of it beside those of LOAD."""
    folder.chmod(0o700)
    asked = {**LOAD, **{name.replace("_", "-"): value for name, value in options.items()}}
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    env = {"CHAOS_MM_TOKEN_FILE": str(server.state / "token"), "CHAOS_MM_OBJECTIVES": str(folder / "objectives")}
    load = processes.start("load", "--target-url", server.url, "--control-port", "0", *words, state=folder, env=env)
    try:
        yield Stage(server, load, folder)
    finally:
        load.stop()


def _write(folder: Path, changed: Mapping[str, Bounds] | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in SHIPPED.glob("*.yaml"):
        if changed is None or path.stem in changed:
            document = yaml.safe_load(path.read_text())
            _change(document, changed[path.stem] if changed else {})
            (folder / path.name).write_text(yaml.safe_dump(document, sort_keys=False))


def _change(document: dict[str, Any], to: Bounds) -> None:
    if to:
        document["metadata"]["annotations"]["chaos-mm.io/window-seconds"] = f"{to['window']:g}"
        document["spec"]["objectives"][0]["target"] = to["least"]
        document["spec"]["description"] += f" In this test: {to['least']:g} in any {to['window']:g} s."
