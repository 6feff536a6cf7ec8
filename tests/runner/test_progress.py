"""A run as its events tell it."""

from typing import Any

import pytest

from chaos_mm.runner.progress import Progress, Reading, note
from tests.runner.runs import answer

RUN = {
    "event": "run",
    "title": "noisy",
    "phase_seconds": {"baseline": 20, "fault": 10.0},
    "objectives": [{"name": "answers", "sli": "canary_exact", "comparison": "gte", "threshold": 0.5, "min_samples": 5}],
}


def sample(value: float | None, **hits: Any) -> dict[str, Any]:
    return {"event": "sample", "answers": {"answers": answer(value)}, "hits": hits}


def test_it_knows_the_phase_the_hits_and_each_objective() -> None:
    progress = Progress()
    assert progress.take(RUN) == []
    assert progress.take({"event": "phase", "phase": "fault"}) == ["fault (10 s)"]
    hits = {"a": {"matched": 5, "applied": 4}, "b": {"matched": 2, "applied": 1, "errored": 0}}
    assert progress.take(sample(0.9, **hits)) == []
    assert (progress.title, progress.length, progress.hits) == ("noisy", 10.0, "5 of 7")
    assert progress.readings["answers"].said == "0.9 (≥ 0.5)"


def test_only_changes_of_an_objective_are_told() -> None:
    progress = Progress()
    progress.take(RUN)
    told = [progress.take(sample(value)) for value in (0.9, 0.4, 0.3, None, 0.8, 0.9)]
    assert told == [[], ["answers not met: 0.4 (≥ 0.5)"], [], [], ["answers met again: 0.8 (≥ 0.5)"], []]
    assert progress.readings["answers"].values == [0.9, 0.4, 0.3, None, 0.8, 0.9]


@pytest.mark.parametrize(
    ("given", "met"),
    [
        (answer(0.4), False),
        (answer(0.6), True),
        (answer(0.4, met=True), False),
        ({**answer(0.4), "samples": 4}, None),
        ({**answer(0.4), "samples": 5}, False),
        (answer(None), None),
        ({"measured": True, "value": "0.9", "samples": 9}, None),
    ],
)
def test_an_objective_is_shown_met_or_not_by_its_value_once_there_are_enough_requests(
    given: dict[str, Any], met: bool | None
) -> None:
    reading = Reading("answers", "gte", 0.5, 5)
    reading.take(given)
    assert reading.met is met


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"event": "inject", "fault": "image_noise", "point": "proxy", "params": {"sigma": 0.2}},
            "injected image_noise at proxy (sigma=0.2)",
        ),
        ({"event": "released", "lease": "n", "evidence": {"matched": 9, "applied": 8}}, "released n: 8 of 9 hit"),
        ({"event": "refused", "reasons": [{"word": "error", "reason": "no"}, {"reason": "nay"}]}, "refused: no; nay"),
        ({"event": "guard", "objective": "o", "reason": "why"}, "a guard stops it: why"),
        ({"event": "signal", "name": "SIGTERM", "place": "activity"}, "SIGTERM received"),
        ({"event": "stop", "reason": "asked"}, "stopping: asked"),
        ({"event": "rollback", "name": "r", "status": "failed"}, "rollback r failed"),
        ({"event": "rollback", "name": "r", "status": "succeeded"}, ""),
        ({"event": "activity", "type": "action", "name": "a", "status": "failed"}, "action a failed"),
        ({"event": "activity", "type": "action", "name": "a", "status": "succeeded"}, ""),
        ({"event": "residue", "measured": True, "live": 1, "reason": "x lives"}, "residue: x lives"),
        ({"event": "residue", "measured": False, "live": 0, "reason": "a point that was not used is not there"}, ""),
        ({"event": "something of later versions"}, ""),
    ],
)
def test_what_an_event_says(event: dict[str, Any], said: str) -> None:
    assert note(event) == said


@pytest.mark.parametrize("name", ["run", "phase", "sample", "inject", "released", "refused", "residue"])
@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [None]])
def test_nothing_in_an_event_can_break_it(name: str, junk: Any) -> None:
    keys = ("title", "phase", "phase_seconds", "objectives", "answers", "hits", "params", "evidence", "reasons", "live")
    Progress().take({"event": name, **dict.fromkeys(keys, junk)})
    Progress().take(
        {"event": name, "answers": {"a": junk}, "hits": {"b": junk}, "objectives": [{"name": "x", "threshold": junk}]}
    )
