"""The worst window: the load's word first, the run's own samples where it has none."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chaos_mm.controls.run import Run
from chaos_mm.controls.worst import Sampled, WorstWindows, from_samples
from chaos_mm.sli.objectives import Objective
from tests.edge.test_phases import FakeLoad

ANSWERS = Objective("answers", "canary_exact", threshold=0.8, window_seconds=5.0, min_samples=10)
LEAKS = Objective("leaks", "leak_count", comparison="lte", threshold=0.0, window_seconds=5.0)


def sample(value: float, at: float, samples: int = 20, **more: Any) -> dict[str, Any]:
    """An answer over a whole window that was taken ``at`` seconds into the phase."""
    answer = {"measured": True, "value": value, "unit": "ratio", "samples": samples, "window_seconds": 5.0}
    return {**answer, "seconds": at, **more}


def sampled(objective: Objective, *samples: dict[str, Any]) -> Sampled:
    kept = Sampled(objective)
    for one in samples:
        kept.add(one)
    return kept


def test_the_worst_sample_decides() -> None:
    found = from_samples(sampled(ANSWERS, sample(0.9, 5.0), sample(0.3, 6.0), sample(1.0, 7.0)), 7.2)
    assert (found["value"], found["started_seconds"]) == (0.3, 1.0)
    assert (found["windows"], found["without_data"]) == (3, 0)
    assert from_samples(sampled(LEAKS, sample(0.0, 5.0), sample(2.0, 6.0)), 6.0)["value"] == 2.0


def test_what_was_not_sampled_has_no_data() -> None:
    found = from_samples(sampled(ANSWERS, sample(0.9, 5.0)), 14.0)
    assert (found["measured"], found["windows"], found["without_data"]) == (True, 10, 9)
    few = from_samples(sampled(ANSWERS, sample(0.9, 5.0), sample(0.1, 6.0, samples=9)), 6.0)
    assert (few["value"], few["windows"], few["without_data"]) == (0.9, 2, 1)


@pytest.mark.parametrize("samples", [[], [sample(0.0, 5.0, measured=False)]])
def test_without_any_there_is_no_data(samples: list[Any]) -> None:
    found = from_samples(sampled(ANSWERS, *samples), 3.0)
    assert (found["measured"], found["windows"], found["without_data"]) == (False, 1, 1)
    assert found["reason"]


@pytest.fixture
def load(token: str) -> Iterator[FakeLoad]:
    made = FakeLoad(token)
    yield made
    made.server.close()


def worst_windows(url: str, token: str, whole: dict[Any, Any] | None = None) -> WorstWindows:
    run = Run("t", configuration={"load_control_url": url}, secrets={"token": token})
    return WorstWindows(run, [ANSWERS], [LEAKS], whole or {})


def test_the_loads_answer_is_judged(load: FakeLoad, token: str) -> None:
    worst = worst_windows(load.server.url, token)
    load.worst["canary_exact"] = {**sample(0.7, 0.0), "windows": 8, "without_data": 0, "started_seconds": 2.0}
    load.worst["leak_count"] = {**sample(0.0, 0.0), "windows": 8, "without_data": 0, "started_seconds": 0.0}
    worst.ask("fault", 12.0)
    answer = worst.answer(ANSWERS, "fault")
    assert (answer["met"], answer["started_seconds"]) == (False, 2.0)
    assert answer["reason"] == "answers: canary_exact is 0.7, not at least 0.8"
    (window,) = worst.windows(["fault"])  # what only guards is not judged
    assert (window.objective, window.measured, window.met, window.windows) == ("answers", True, False, 8)
    assert worst.worst_of("fault") == ("answers", answer)


def test_of_the_guards_those_are_judged_that_may_not_be_broken_for_a_moment(load: FakeLoad, token: str) -> None:
    run = Run("t", configuration={"load_control_url": load.server.url}, secrets={"token": token})
    patient = replace(LEAKS, name="patient", hold_seconds=5.0)
    worst = WorstWindows(run, [ANSWERS], [LEAKS, patient], {})
    load.worst = {"canary_exact": told(0.9), "leak_count": told(2.0)}
    worst.ask("recovery", 12.0)
    (window,) = worst.guarded(["recovery"])
    assert (window.objective, window.phase, window.measured, window.met) == ("leaks", "recovery", True, False)
    assert window.reason == "leaks: leak_count is 2, not at most 0"


def test_the_last_answer_counts(load: FakeLoad, token: str) -> None:
    worst = worst_windows(load.server.url, token)
    counts = {"windows": 8, "without_data": 0, "started_seconds": 0.0, "phase_seconds": 9.0}
    load.worst["leak_count"] = {**sample(0.0, 0.0), **counts}
    for value, settled in ((0.9, 8.0), (0.7, 9.0)):
        load.worst["canary_exact"] = {**sample(value, 0.0), **counts, "settled_seconds": settled}
        worst.ask("fault", 9.0)
        assert worst.settled("fault") == (settled == 9.0)
    assert worst.answer(ANSWERS, "fault")["met"] is False


def test_a_request_without_an_answer_may_still_be_answered_well(load: FakeLoad, token: str) -> None:
    worst = worst_windows(load.server.url, token)
    load.worst = {"canary_exact": {**told(0.7), "open": 30}, "leak_count": told(0.0)}
    worst.ask("recovery", 12.0)
    assert not worst.settled("recovery")
    load.worst["canary_exact"] = {**told(0.9), "open": 0}
    worst.ask("recovery", 12.0)
    assert worst.settled("recovery") and worst.windows(["recovery"])[0].met


def test_a_load_that_is_gone_leaves_the_samples(token: str) -> None:
    whole = {("answers", "fault"): sampled(ANSWERS, sample(0.95, 5.0), sample(0.85, 6.0))}
    worst = worst_windows("http://127.0.0.1:9", token, whole)
    worst.ask("fault", 6.0)
    assert worst.answer(ANSWERS, "fault")["value"] == 0.85
    assert worst.windows(["fault"])[0].met
    assert worst.settled("fault")  # nothing more is to be waited for


def test_an_answer_without_measured_windows_is_no_data(load: FakeLoad, token: str) -> None:
    worst = worst_windows(load.server.url, token)
    nothing = {"measured": False, "value": 0.0, "samples": 0, "reason": "no requests", "windows": 8, "without_data": 8}
    load.worst = {"canary_exact": nothing, "leak_count": nothing}
    worst.ask("fault", 12.0)
    (window,) = worst.windows(["fault"])
    assert (window.measured, window.met) == (False, False)
    assert "no requests" in window.reason


def test_an_objective_without_an_answer_comes_first_on_the_line(load: FakeLoad, token: str) -> None:
    worst = WorstWindows(Run("t"), [LEAKS, ANSWERS], [], {("leaks", "fault"): sampled(LEAKS, sample(0.0, 5.0))})
    found = worst.worst_of("fault")
    assert found is not None and found[0] == "answers"
    assert WorstWindows(Run("t"), [], [LEAKS], {}).worst_of("fault") is None


def test_the_line_names_what_used_most_of_its_error_budget_as_the_closing_table_does() -> None:
    pictures = replace(ANSWERS, threshold=0.5)
    whole = replace(ANSWERS, name="availability", threshold=0.98)
    said = {("answers", "fault"): sampled(pictures, sample(0.85, 5.0)),
            ("availability", "fault"): sampled(whole, sample(1.0, 5.0))}  # fmt: skip
    found = WorstWindows(Run("t"), [whole, pictures], [], said).worst_of("fault")
    assert found is not None and found[0] == "answers"


def told(value: float, **more: Any) -> dict[str, Any]:
    counts = {"windows": 8, "without_data": 0, "started_seconds": 2.0, "phase_seconds": 12.0, "settled_seconds": 12.0}
    return {**sample(value, 0.0), **counts, **more}


@pytest.mark.parametrize(
    "later",
    [
        {"measured": False, "value": 0.0, "windows": 8, "without_data": 8, "forgotten_seconds": 12.0},
        {"measured": False, "value": 0.0, "windows": 0, "reason": "the run was never marked", "phase_seconds": 0.0},
    ],
)
def test_what_the_load_knew_counts_when_it_has_forgotten(load: FakeLoad, token: str, later: dict[str, Any]) -> None:
    worst = worst_windows(load.server.url, token)
    load.worst = {"canary_exact": told(0.9), "leak_count": told(0.0)}
    worst.ask("baseline", 12.0)
    load.worst["canary_exact"] = {**told(0.9), **later}
    worst.ask("baseline", 12.0)
    assert worst.windows(["baseline"])[0].met and worst.answer(ANSWERS, "baseline")["windows"] == 8


def test_an_outage_that_the_load_has_forgotten_was_seen(load: FakeLoad, token: str) -> None:
    whole = {
        ("answers", "fault"): sampled(ANSWERS, *(sample(0.2 if at < 8 else 1.0, float(at)) for at in range(5, 105)))
    }
    worst = worst_windows(load.server.url, token, whole)
    forgotten = told(1.0, windows=100, without_data=9, phase_seconds=104.0, forgotten_seconds=9.0)
    load.worst = {"canary_exact": forgotten, "leak_count": told(0.0)}
    worst.ask("fault", 104.0)
    (window,) = worst.windows(["fault"])
    assert not window.met and (window.windows, window.without_data) == (100, 0)
    assert worst.answer(ANSWERS, "fault")["value"] == 0.2


def test_a_forgotten_beginning_that_nobody_sampled_has_no_data(load: FakeLoad, token: str) -> None:
    worst = worst_windows(load.server.url, token)
    forgotten = told(1.0, windows=100, without_data=40, phase_seconds=104.0, forgotten_seconds=40.0)
    load.worst = {"canary_exact": forgotten, "leak_count": told(0.0)}
    worst.ask("fault", 104.0)
    (window,) = worst.windows(["fault"])
    assert window.met and (window.windows, window.without_data) == (100, 40)
