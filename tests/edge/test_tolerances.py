"""Tolerances fail closed on anything and never raise."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.tolerances import at_least, at_most, between, measured, within_objective
from tests.edge.chaos import REPOSITORY

OBJECTIVES = {"objectives_dir": str(REPOSITORY / "experiments" / "objectives")}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)
ANSWERS = st.fixed_dictionaries(
    {}, optional={key: ANYTHING for key in ("measured", "value", "samples", "reason", "unit", "status")}
)


def answer(value: Any = 0.9, samples: Any = 100, **more: Any) -> dict[str, Any]:
    return {"measured": True, "value": value, "unit": "ratio", "samples": samples, "reason": "", **more}


@pytest.mark.parametrize(("value", "met"), [(0.9, True), (0.5, True), (0.49, False), (math.nan, False), (None, False)])
def test_at_least(value: Any, met: bool) -> None:
    assert at_least(0.5, answer(value)) is met


def test_bounds_are_inclusive_and_may_come_as_text() -> None:
    assert at_most("0.9", answer(0.9))  # type: ignore[arg-type]
    assert between(0.9, 0.9, answer(0.9))
    assert not between(0.91, 1, answer(0.9))
    assert at_least(0.5, 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        b"1",
        "nan",
        math.inf,
        True,
        answer(True),
        answer("much"),
        answer(measured=False),
        answer(measured=1),
    ],
)
def test_what_is_no_measurement_is_not_met(value: Any) -> None:
    assert at_least(-math.inf, value) is False
    assert measured(value) is False


def test_too_few_samples_are_not_met() -> None:
    assert measured(answer(samples=5), 5)
    assert not measured(answer(samples=4), 5)
    assert not measured(answer(samples=None), 5)


@pytest.mark.parametrize("bound", [None, math.nan, "high", [], True])
def test_a_bound_that_is_no_number_is_not_met(bound: Any) -> None:
    assert at_least(bound, answer()) is False


@pytest.mark.parametrize(
    ("objective", "value", "met"),
    [
        ("picture-answers", answer(0.9), True),
        ("picture-answers", answer(0.1), False),
        ("picture-answers", answer(0.9, samples=1), False),
        ("no-such-objective", answer(), False),
        ([], answer(), False),
        ("picture-answers", None, False),
    ],
)
def test_within_objective(objective: Any, value: Any, met: bool) -> None:
    assert within_objective(objective, value, OBJECTIVES) is met


def test_objectives_that_cannot_be_read_are_not_met(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: [")
    assert within_objective("picture-answers", answer(), {"objectives_dir": str(tmp_path)}) is False
    assert within_objective("picture-answers", answer(), {"objectives_dir": str(tmp_path / "none")}) is False


@settings(max_examples=200, deadline=None)
@given(value=ANYTHING | ANSWERS, bound=SCALARS, least=SCALARS)
def test_any_answer_gives_a_bool(value: Any, bound: Any, least: Any) -> None:
    assert isinstance(at_least(bound, value, least), bool)
    assert isinstance(between(bound, bound, value, least), bool)
    assert isinstance(measured(value, least), bool)


@settings(max_examples=50, deadline=None)
@given(value=ANYTHING | ANSWERS)
def test_any_answer_is_judged_by_an_objective(value: Any) -> None:
    assert isinstance(within_objective("picture-answers", value, OBJECTIVES), bool)
