"""The normalisation of answers, form by form, and the distances."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.sli.answers import MAX_COMPARED, codes_said, digit_errors, edit_distance, exact, normalise, similarity

RIGHT = [
    ("image", "4072"),
    ("image", " 4072.\n"),
    ("image", "4 0 7 2"),
    ("image", "4-0-7-2"),
    ("image", "The number in the picture is 4072."),
    ("image", "I see one number: **4072**"),
    ("image", "four oh seven two"),
    ("image", "Four, zero, seven, two!"),
    ("image", "４０７２"),  # full-width
    ("audio", "For oh seven to."),
    ("audio", "The code is four zero seven too"),
    ("text", "40 72"),
    ("image", "4072\n\n4072"),
    ("image", "The code is 4072. 1 picture."),
    ("image", "<think>4071? no</think>4072"),
    ("image", "4. 0. 7. 2."),
    ("text", "4\n0\n7\n2"),
]
WRONG = [
    ("image", ""),
    ("image", "4073"),
    ("image", "40725"),
    ("image", "407"),
    ("image", "In 2024 the code was 4072"),  # two candidates are none
    ("image", "for oh seven to"),  # what a recogniser mishears is no digit elsewhere
    ("audio", "unknown"),
    ("text", "4072 4072"),
    ("image", "4072\n4071"),
]


@pytest.mark.parametrize(("kind", "answer"), RIGHT)
def test_a_code_said_in_another_form_is_right(kind: str, answer: str) -> None:
    assert exact(kind, "4072", answer)


@pytest.mark.parametrize(("kind", "answer"), WRONG)
def test_another_code_is_wrong(kind: str, answer: str) -> None:
    assert not exact(kind, "4072", answer)


@pytest.mark.parametrize(
    ("kind", "expected", "answer", "right"),
    [
        ("colour", "red", "Red.", True),
        ("colour", "red", "The digits are red", True),
        ("colour", "purple", "violet", True),
        ("colour", "red", "red or blue", False),
        ("colour", "red", "reddish", False),
        ("agreement", "yes", "Yes, they do.", True),
        ("agreement", "no", "No", True),
        ("agreement", "yes", "no", False),
        ("agreement", "yes", "yes and no", False),
        ("agreement", "yes", "unknown", False),
        ("agreement", "no", "No, they differ.", True),
        ("agreement", "no", "no they do not", True),
        ("agreement", "no", "The answer is no", True),
        ("agreement", "no", "No.\nThe voice says 4071", True),
        ("agreement", "no", "No audio was provided", False),
        ("agreement", "no", "I have no idea", False),
        ("agreement", "yes", "<think>no</think>yes", True),
    ],
)
def test_words(kind: str, expected: str, answer: str, right: bool) -> None:
    assert exact(kind, expected, answer) is right


def test_an_expectation_without_content_is_never_met() -> None:
    assert not exact("image", "", "")


def test_every_code_of_an_answer() -> None:
    assert codes_said("image", "4072 and also 9915") == {"4072", "9915"}
    assert codes_said("audio", "for oh seven to") == {"4072"}
    assert codes_said("text", "4\n0\n7\n2") == {"4072"}
    assert codes_said("text", "in all 12 or 123456") == set()


def test_digit_errors_count_like_word_error_rate() -> None:
    assert digit_errors("audio", "4072", "4072") == (0, 4)
    assert digit_errors("audio", "4072", "4172") == (1, 4)  # substitution
    assert digit_errors("audio", "4072", "472") == (1, 4)  # deletion
    assert digit_errors("audio", "4072", "40772") == (1, 4)  # insertion
    assert digit_errors("audio", "4072", "") == (4, 4)
    assert digit_errors("audio", "4072", "9" * 5000)[0] <= MAX_COMPARED


def test_similarity() -> None:
    assert similarity("image", "4072", "4072") == 1.0
    assert similarity("image", "4072", "4172") == 0.75
    assert similarity("image", "4072", "nothing") == 0.0
    assert similarity("image", "a cat on a mat", "a cat on a mat") == 1.0
    assert 0.0 < similarity("image", "a cat on a mat", "a cat on a hat") < 1.0


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_edit_distance_is_a_metric_and_agrees_with_difflib(a: str, b: str) -> None:
    distance = edit_distance(a, b)
    assert distance == edit_distance(b, a)
    assert (distance == 0) == (a == b)
    assert abs(len(a) - len(b)) <= distance <= max(len(a), len(b))
    # difflib's edit script is one way from a to b, so the shortest cannot be longer.
    script = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    assert distance <= sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in script if tag != "equal")


@given(st.sampled_from(["image", "colour", "audio", "text", "agreement", "?"]), st.text(max_size=200))
def test_any_answer_normalises_and_normal_forms_are_stable(kind: str, answer: str) -> None:
    once = normalise(kind, answer)
    assert normalise(kind, once) == once
    assert 0.0 <= similarity(kind, "4072", answer) <= 1.0
