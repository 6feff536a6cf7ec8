"""Tolerances fail closed on anything and never raise."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.probes import sli
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
    assert measured(answer(samples=None), 0)


def test_a_bare_number_tells_no_samples() -> None:
    assert at_least(0.9, 0.95)  # type: ignore[arg-type]
    assert at_least(0.9, 0.95, -1)  # type: ignore[arg-type]
    assert not at_least(0.9, 0.95, 10)  # type: ignore[arg-type]
    assert not at_most(0.9, 0.5, 1)  # type: ignore[arg-type]
    assert not measured(0.95, 1)  # type: ignore[arg-type]


def test_text_is_a_bound_and_no_measurement() -> None:
    assert at_least("0.9", answer(0.95), "10")  # type: ignore[arg-type]
    assert not at_least(0.9, "0.95")  # type: ignore[arg-type]
    assert not at_least(0.9, answer("0.95"))
    assert not at_least(0.9, answer(0.95, samples="12"), 10)


@pytest.mark.parametrize("least", [None, "many", math.nan, True, []])
def test_min_samples_that_are_no_number_are_not_met(least: Any) -> None:
    assert not measured(answer(), least)
    assert not at_least(0.5, answer(), least)


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


@pytest.mark.parametrize("content", [b"x: 2026-13-45\n", b"[" * 20000, b"\xff\xfe\x00\xd8", b"!!python/object:x {}"])
def test_no_content_of_an_objective_file_raises(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.yaml").write_bytes(content)
    setting = {"objectives_dir": str(tmp_path)}
    assert within_objective("picture-answers", answer(), setting) is False
    told = sli(objective="picture-answers", configuration=setting)
    assert (told["measured"], told["value"]) == (False, 0.0)
    assert told["reason"]


def test_a_folder_in_place_of_an_objective_file_does_not_raise(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    setting = {"objectives_dir": str(tmp_path)}
    assert within_objective("picture-answers", answer(), setting) is False
    assert sli(objective="picture-answers", configuration=setting)["measured"] is False


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
