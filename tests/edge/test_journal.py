"""The toolkit's journal: read in our words, and the verdict written into it in the toolkit's."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls import journal as toolkits
from chaos_mm.controls.facts import Facts, Reason
from chaos_mm.controls.judge import Judged, judge


def entry(name: str = "p", status: str = "succeeded", type: str = "probe", **more: Any) -> dict[str, Any]:
    provider = {"type": "python", "module": "chaos_mm.actions", "func": name}
    return {"activity": {"name": name, "type": type, "provider": provider}, "status": status, **more}


def state(*probes: dict[str, Any], met: bool = False) -> dict[str, Any]:
    return {"steady_state_met": met, "probes": list(probes)}


def journal(before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "status": "completed",
        "deviated": False,
        "steady_states": {"before": before, "after": after, "during": []},
        "run": [],
        "rollbacks": [],
        **more,
    }


def told(body: dict[str, Any]) -> list[str]:
    return [reason.word for reason in toolkits.reasons(body)]


UNMET = entry(tolerance_met=False, output=0.2)
FAILED = entry(status="failed", tolerance_met=False, exception=["x", "chaoslib.exceptions.ActivityFailed: it is gone"])
UNMEASURED = entry(tolerance_met=False, output={"measured": False, "value": 0.0, "reason": "no requests"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (journal(), []),
        (journal(state(entry(tolerance_met=True), met=True), state(met=True)), []),
        (journal(before=state(UNMET)), ["not_steady"]),
        (journal(before=state(FAILED)), ["not_steady"]),
        (journal(before=state(UNMEASURED)), ["not_steady"]),
        (journal(after=state(UNMET)), ["deviated"]),
        (journal(after=state(FAILED)), ["no_data"]),
        (journal(after=state(UNMEASURED)), ["no_data"]),
        (journal(run=[entry("look", "failed")]), ["no_data"]),
        (journal(run=[entry("scale", "failed", "action")]), ["not_applied"]),
        (journal(run=[entry("inject_image_noise", "failed", "action")]), []),  # noted where it happened
        (journal(run=[entry("release", "failed", "action")]), ["error"]),
        (journal(status="interrupted", run=[{"activity": {"name": "cut short", "type": "action"}}]), []),
        (journal(rollbacks=[entry("release", "failed", "action")]), ["error"]),
        (journal(status="aborted"), ["error"]),
        ({}, []),
    ],
)
def test_what_the_toolkit_found(body: dict[str, Any], words: list[str]) -> None:
    assert told(body) == words


def test_a_reason_stands_alone() -> None:
    (reason,) = toolkits.reasons(journal(after=state(FAILED)))
    assert reason.reason == "the probe 'p' gave no value: it is gone"
    (reason,) = toolkits.reasons(journal(before=state(UNMEASURED)))
    assert reason.reason == "the gate 'p' was not met: no requests"


@pytest.mark.parametrize(("place", "word"), [("before", "not_steady"), ("after", "no_data")])
def test_too_few_requests_are_no_data_and_no_deviation(place: str, word: str) -> None:
    answer = {"measured": True, "value": 1.0, "unit": "ratio", "samples": 4, "window_seconds": 5.0, "reason": ""}
    tolerance = {"type": "probe", "provider": {"arguments": {"objective": "text-answers"}}}
    few = entry(tolerance_met=False, output=answer)
    few["activity"]["tolerance"] = tolerance
    (reason,) = toolkits.reasons(journal(**{place: state(few)}))
    assert reason.word == word
    assert reason.reason.endswith(": text-answers: no data: 4 samples, at least 5 needed")
    few["activity"]["name"] = "text-answers"  # as most are called
    (reason,) = toolkits.reasons(journal(**{place: state(few)}))
    assert reason.reason.count("text-answers") == 1
    low = entry(tolerance_met=False, output={**answer, "value": 0.2, "samples": 9})
    low["activity"]["tolerance"] = tolerance
    (reason,) = toolkits.reasons(journal(after=state(low)))
    assert reason.word == "deviated" and reason.reason.endswith("canary_exact is 0.2, not at least 0.5")


def judged(word: str) -> Judged:
    return judge(Facts(refused=True, noted=(Reason(word, f"why {word}"),)))


def tell(body: dict[str, Any], word: str, signal: str = "", guard: str = "") -> dict[str, Any]:
    toolkits.tell(body, judged(word), {"verdict": word}, signal, guard)
    return body


@pytest.mark.parametrize(
    "word", ["not_restored", "error", "interrupted", "not_steady", "not_applied", "not_exercised", "no_data"]
)
def test_what_is_not_conclusive_is_interrupted_by_the_control(word: str) -> None:
    body = tell(journal(), word)
    assert (body["status"], body["deviated"]) == ("interrupted", False)
    assert body["interruption"] == {"kind": "control", "name": "verdict", "reason": f"{word}: why {word}"}
    assert body["verdict"] == {"verdict": word}


def test_a_signal_is_named() -> None:
    body = tell(journal(status="interrupted"), "interrupted", signal="SIGTERM")
    assert body["interruption"] == {"kind": "signal", "name": "SIGTERM", "reason": "received SIGTERM"}


def test_a_deviation_is_a_state_of_during() -> None:
    body = tell(journal(after=state(met=True)), "deviated")
    assert (body["status"], body["deviated"]) == ("completed", True)
    (during,) = body["steady_states"]["during"]
    assert during["steady_state_met"] is False
    assert during["probes"][0]["output"] == "why deviated"
    assert "interruption" not in body


def test_a_guard_is_a_safeguard() -> None:
    body = tell(journal(status="interrupted"), "halted", guard="bystanders")
    assert (body["status"], body["deviated"]) == ("interrupted", True)
    assert body["interruption"] == {"kind": "safeguard", "name": "bystanders", "reason": "why halted"}


@pytest.mark.parametrize(
    ("word", "body"), [("not_steady", journal(before=state(UNMET))), ("no_data", journal(after=state(FAILED)))]
)
def test_what_the_toolkit_says_itself_is_left_to_it(word: str, body: dict[str, Any]) -> None:
    told = tell(body, word)
    assert told["status"] == "failed"
    assert "interruption" not in told


@pytest.mark.parametrize("word", ["passed", "dry"])
def test_a_good_end_changes_nothing_but_the_block(word: str) -> None:
    body = journal()
    toolkits.tell(body, Judged(word, (word,), (Reason(word, "fine"),)), {"verdict": word}, "", "")
    assert body == {**journal(), "verdict": {"verdict": word}}


def test_after_a_crash_it_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    toolkits.write(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("kind", "word"), [("action", "not_applied"), ("probe", "no_data")])
def test_an_activity_without_a_status_was_cut_short(kind: str, word: str) -> None:
    """The engine does not look at what ended an activity in the background; when it was interrupted that is why."""
    cut = {"activity": {"name": "gone", "type": kind}, "output": None}
    (reason,) = toolkits.reasons({"status": "completed", "run": [cut]})
    assert reason == Reason(word, "'gone' was cut short: nobody knows what it did")
    assert list(toolkits.reasons({"status": "interrupted", "run": [cut]})) == []
    assert list(toolkits.reasons({"status": "completed", "run": [{**cut, "dry": True}]})) == []
