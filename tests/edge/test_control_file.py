"""Our control put on an experiment of somebody else's by ``--control-file``: it runs as it would, and is judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.edge.chaos import REPOSITORY, Chaos, Outcome

CONTROL = REPOSITORY / "experiments" / "controls" / "verdict.json"


def touch(path: Path) -> dict[str, Any]:
    provider = {"type": "process", "path": "touch", "arguments": str(path)}
    return {"type": "action", "name": "touch", "provider": provider}


def foreign(folder: Path, **more: Any) -> dict[str, Any]:
    """Nothing of ours in it."""
    return {"title": "theirs", "description": "theirs", "method": [touch(folder / "done")], "rollbacks": [], **more}


def hypothesis(met: bool) -> dict[str, Any]:
    provider = {"type": "process", "path": "true", "arguments": ""}
    probe = {"type": "probe", "name": "true", "provider": provider}
    tolerance = {"type": "range", "target": "status", "range": [0, 0] if met else [1, 1]}
    return {"steady-state-hypothesis": {"title": "t", "probes": [{**probe, "tolerance": tolerance}]}}


def verdict_of(chaos: Chaos, **more: Any) -> tuple[Outcome, dict[str, Any]]:
    got = chaos.run(foreign(chaos.folder, **more), "--control-file", str(CONTROL))
    (path,) = (chaos.folder / "reports").glob("*/verdict.json")
    return got, json.loads(path.read_text())


@pytest.mark.parametrize(
    ("more", "word", "status"),
    [({}, "no_data", 3), (hypothesis(True), "passed", 0), (hypothesis(False), "not_steady", 3)],
)
def test_it_is_judged(chaos: Chaos, more: dict[str, Any], word: str, status: int) -> None:
    got, verdict = verdict_of(chaos, **more)
    assert (verdict["verdict"], got.status) == (word, status), got.output
    assert (chaos.folder / "done").exists() == (word != "not_steady")
    assert got.journal is not None and verdict["leases"] == []


def test_without_it_nothing_of_ours_is_left(chaos: Chaos) -> None:
    assert chaos.run(foreign(chaos.folder)).status == 0
    assert not (chaos.folder / "reports").exists()
