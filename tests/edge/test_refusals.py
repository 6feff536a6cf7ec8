"""What the control refuses before anything runs, beyond values: here names that lead nowhere."""

from pathlib import Path
from typing import Any

from chaos_mm.controls.refusals import refusals


def _asks_for(objective: str) -> dict[str, Any]:
    provider = {"type": "python", "module": "chaos_mm.probes", "func": "sli", "arguments": {"objective": objective}}
    return {"steady-state-hypothesis": {"title": "t", "probes": [{"type": "probe", "name": "p", "provider": provider}]}}


def test_a_misspelt_objective_is_refused_with_the_nearest() -> None:
    assert refusals(_asks_for("picture-answer"), {}, {}, False) == [
        "no objective 'picture-answer'; did you mean 'picture-answers'?"
    ]


def test_an_objective_like_no_other_is_refused_with_those_there_are() -> None:
    (reason,) = refusals(_asks_for("zzz"), {}, {}, False)
    assert reason.startswith("no objective 'zzz'; there are: agreement-answers, availability")


def test_a_variable_is_looked_into() -> None:
    assert refusals(_asks_for("${which}"), {"which": "picture-answers"}, {}, False) == []
    (reason,) = refusals(_asks_for("${which}"), {"which": "picture-answer"}, {}, False)
    assert "did you mean" in reason


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    (reason,) = refusals(_asks_for("picture-answers"), {"objectives_dir": missing}, {}, False)
    assert missing in reason
