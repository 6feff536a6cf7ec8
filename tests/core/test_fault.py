"""The declaration: what it reads from the function, and what it refuses."""

import json
from typing import Annotated, Any

import pytest

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import FRAME_WORDS, TARGETS, Param, Point, Shape, Target, fault
from chaos_mm.core.params import ParamSpec
from tests.core.samples import text_append


def test_reads_everything_from_the_function():
    assert text_append.name == "text_append"
    assert text_append.doc == "Append letters."
    assert text_append.shape is Shape.TRANSFORM
    assert text_append.points == (Point.PROXY, Point.AGENT)
    assert list(text_append.params) == ["count", "letter"]


def test_schema_is_strict_json():
    schema = json.loads(json.dumps(text_append.schema(), allow_nan=False))
    assert schema["params"][1] == {
        "name": "letter",
        "type": "str",
        "default": "x",
        "doc": "which letter",
        "ge": None,
        "le": None,
        "unit": "",
        "choices": ["x", "y"],
    }


def test_bind_fills_defaults_then_preset_then_given():
    assert text_append.bind({}) == {"count": 1, "letter": "x"}
    assert text_append.bind({}, severity=3) == {"count": 3, "letter": "x"}
    assert text_append.bind({"count": "2"}, severity=3) == {"count": 2, "letter": "x"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": "10%"}, ["count='10%'", "[0, 9]"]),
        ({"count": -1}, ["count=-1", "[0, 9]"]),
        ({"count": float("nan")}, ["count=nan", "[0, 9]"]),
        ({"count": float("inf")}, ["count=inf"]),
        ({"count": 1e9}, ["count=1000000000.0"]),
        ({"count": 1.5}, ["count=1.5", "whole number"]),
        ({"count": True}, ["count=True"]),
        ({"count": None}, ["count=None"]),
        ({"count": "0_1"}, ["count='0_1'"]),
        ({"count": "１"}, ["count='１'"]),
        ({"count": " 1"}, ["count=' 1'"]),
        ({"count": "0x1"}, ["count='0x1'"]),
        ({"count": 2.0**60}, ["count="]),
        ({"count": [1]}, ["count=[1]"]),
        ({"count": 10**400}, ["count="]),
        ({"cuont": 1}, ["unknown parameter 'cuont'", "'count', 'letter'"]),
        ({"letter": "z"}, ["letter='z'", "one of 'x', 'y'"]),
    ],
)
def test_bad_values_are_refused_naming_parameter_value_and_range(given: dict[str, Any], words: list[str]):
    with pytest.raises(InvalidParams) as caught:
        text_append.bind(given)
    assert str(caught.value).startswith("text_append: ")
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("text", ["0_1", "１", "٠.١", " 0.1 ", "0.1\n", "1e-400", "nan", "inf", "", "1e99999", "0x1p3"])
def test_texts_that_only_look_like_numbers_are_refused(text: str):
    with pytest.raises(ValueError, match="is not allowed"):
        ParamSpec("sigma", float, 0.1, "a number", 0, 1).check(text)


@pytest.mark.parametrize(
    ("given", "value"), [("0.1", 0.1), ("-0.0", 0.0), ("1e-3", 0.001), ("0e5", 0.0), (".5", 0.5), (1, 1.0)]
)
def test_numbers_are_taken_from_texts_too(given: Any, value: float):
    assert ParamSpec("sigma", float, 0.1, "a number", 0, 1).check(given) == value


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1, str(2**63 - 1)])
def test_large_whole_numbers_stay_exact(seed: Any):
    assert ParamSpec("seed", int, 0, "a seed", 0, 2**63 - 1).check(seed) == int(seed)


def test_unknown_severity_names_the_presets():
    with pytest.raises(InvalidParams, match=r"severity=2 is not one of \[1, 3\]"):
        text_append.bind({}, severity=2)


def test_dose_zero_is_a_noop():
    assert text_append.is_noop(text_append.bind({"count": 0}))
    assert not text_append.is_noop(text_append.bind({"count": 1}))


def _declare(function: Any, **options: Any) -> None:
    fault(options.pop("target", Target.TEXT), **options)(function)


def no_doc(text, rng, *, a: Annotated[float, Param("a")] = 0.0):
    return text


def bare_parameter(text, rng, *, a: float = 0.0):
    """A fault."""
    return text


def no_default(text, rng, *, a: Annotated[float, Param("a")]):
    """A fault."""
    return text


def frame_word(text, rng, *, rate: Annotated[float, Param("a")] = 0.0):
    """A fault."""
    return text


def wrong_shape(text, rng, *, a: Annotated[float, Param("a")] = 0.0):
    """A fault."""
    yield text


def bad_default(text, rng, *, a: Annotated[float, Param("a", le=1)] = 2.0):
    """A fault."""
    return text


def plain(text, rng, *, a: Annotated[float, Param("a", le=1)] = 0.0):
    """A fault."""
    return text


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (no_doc, {}, "no_doc: a fault's docstring"),
        (bare_parameter, {}, "parameter 'a' must be Annotated"),
        (no_default, {}, "'a' needs a default"),
        (frame_word, {}, r"\['rate'\] are words of the frame"),
        (wrong_shape, {}, "must be a transform"),
        (bad_default, {}, "default of 'a'"),
        (plain, {"dose": "b"}, "dose 'b' is no parameter"),
        (plain, {"points": (Point.LOAD,)}, "points must be among"),
        (plain, {"presets": {1: {"a": 5}}}, "preset 1: plain: a=5"),
    ],
)
def test_incomplete_declarations_are_refused_by_name(function: Any, options: dict[str, Any], words: str):
    with pytest.raises(TypeError, match=words):
        _declare(function, **options)


def test_every_target_has_a_row_and_frame_words_are_the_design_s():
    assert set(TARGETS) == set(Target)
    assert len(FRAME_WORDS) == 14
    assert not TARGETS[Target.MEMORY].selectable
    assert TARGETS[Target.MEDIA_POOL].carries_content
