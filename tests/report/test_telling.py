"""What a run came to, in sentences."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos_mm.report.folder import RunReport
from chaos_mm.report.parts import Hits, Objective, Window
from chaos_mm.report.telling import (
    TONES,
    by_weight,
    dosed,
    expectation,
    hit,
    lead,
    spent,
    telling_objective,
    tone,
    trail,
    worst_windows,
)
from chaos_mm.report.words import EXIT_CODES, WORDS
from tests.report.samples import DEVIATED, HALTED, NOT_EXERCISED, PASSED


def objective(comparison: str, threshold: float, **values: float) -> Objective:
    told = {"name": "a", "sli": "x", "comparison": comparison, "threshold": threshold}
    phases = {phase: {"measured": True, "value": value, "unit": "ratio"} for phase, value in values.items()}
    return Objective.of({**told, "phases": phases})


def test_every_word_has_a_tone_that_its_exit_code_allows() -> None:
    assert set(TONES) == set(WORDS)
    by_tone = {tone(word): set() for word in WORDS}
    for word in WORDS:
        by_tone[tone(word)].add(EXIT_CODES[word])
    assert by_tone == {"good": {0}, "quiet": {0}, "bad": {1}, "open": {3}, "broken": {4, 5}}


def test_hits() -> None:
    assert hit(Hits(60, 57, 0)) == "57 of 60" and hit(Hits(60, 57, 2)) == "57 of 60, 2 failed"


def test_a_run_that_deviated(told: Callable[..., RunReport]) -> None:
    first, second, third = lead(told(DEVIATED))
    assert first == "image_noise (sigma 0.4) changed 57 of 57 selected requests, with a mean PSNR of 9.62 dB."
    assert second.startswith("picture-answers was not met: ") and second.endswith("at least 50 % is needed.")
    assert third == "Every objective was met again 6.4 s after release."


def test_a_run_that_passed(told: Callable[..., RunReport]) -> None:
    _, second, third = lead(told(PASSED))
    assert second.startswith("picture-answers was met: 7") and "worst window of fault" in second
    assert third == "Every objective was met from the moment of release."


def test_a_run_without_any_fault(told: Callable[..., RunReport]) -> None:
    run = replace(told(NOT_EXERCISED), leases=(), objectives=())
    assert lead(run) == ["No fault was injected."]
    blind = Objective.of({"name": "a", "named": True, "phases": {"fault": {"measured": False}}})
    assert lead(replace(run, objectives=(blind,))) == ["No fault was injected."]


def test_runs_of_one_experiment_are_told_apart_by_the_dose(told: Callable[..., RunReport]) -> None:
    assert dosed(told(DEVIATED)) == "image_noise (sigma 0.4)"
    assert dosed(replace(told(DEVIATED), leases=())) == "image_noise"


def test_recovery_that_nobody_can_tell(told: Callable[..., RunReport]) -> None:
    said = lead(told(replace(DEVIATED, recovered=None)))[-1]
    assert (
        said == "How soon all was well again could not be told: not every objective was met again before the run ended."
    )


@pytest.mark.parametrize(
    ("comparison", "threshold", "value", "share"),
    [
        ("gte", 0.9, 0.95, 0.5),
        ("gte", 0.9, 0.8, 2.0),
        ("gte", 1.0, 1.0, 0.0),
        ("gte", 1.0, 0.9, 1.0),
        ("lte", 2.0, 1.0, 0.5),
        ("lte", 0.0, 0.0, 0.0),
        ("lte", 0.0, 3.0, 1.0),
    ],
)
def test_how_much_of_the_allowance_a_window_used(comparison: str, threshold: float, value: float, share: float) -> None:
    one = objective(comparison, threshold, fault=value)
    assert spent(one, one.phases["fault"]) == pytest.approx(share)
    assert spent(one, Window.of({}, "ratio")) == 0.0


def test_the_telling_objective_is_the_unmet_or_the_nearest_to_it(told: Callable[..., RunReport]) -> None:
    found = telling_objective(told(HALTED).objectives)
    assert found is not None and found.name == "bystanders-unharmed"
    watched = tuple(replace(one, named=False) for one in told(PASSED).objectives)
    assert telling_objective(watched) is None and telling_objective(()) is None


def test_the_most_telling_come_first_and_guards_that_are_only_watched_last(told: Callable[..., RunReport]) -> None:
    names = [one.name for one in by_weight(told(DEVIATED).objectives)]
    assert names[0] == "picture-answers" and names[-1] == "no-leaks"
    unknown = replace(told(DEVIATED).objectives[0], phases={})
    assert by_weight([unknown, *told(PASSED).objectives[:2]])[-1] is unknown


def test_a_trail_says_what_was_not_met(told: Callable[..., RunReport]) -> None:
    steps = trail(told(DEVIATED).objectives[0])
    assert [(phase, how) for phase, _, how in steps] == [("baseline", ""), ("fault", "not met"), ("recovery", "")]
    blind = Objective.of({"name": "a", "phases": {"fault": {"measured": False}}})
    assert trail(blind) == [("fault", "no data", "")]


def test_worst_windows_by_phase(told: Callable[..., RunReport]) -> None:
    found = worst_windows(told(PASSED).objectives)
    assert list(found) == ["baseline", "fault", "recovery"] and len(found["fault"]) == 4
    assert worst_windows(()) == {}


def test_expectations(told: Callable[..., RunReport]) -> None:
    assert expectation(told(DEVIATED)) == ("deviated", True)
    assert expectation(told(replace(PASSED, expect="halted"))) == ("halted", False)
