"""The wordings: each asks what it says, padding asks nothing, and cutting loses meaning gradually."""

import pytest

from chaos_mm.target import questions


def words_of(task: str) -> list[list[str]]:
    return [wording.replace("{}", "4 0 7 2").split() for wording in questions.QUESTIONS[task]]


def kept(words: list[str], share: float, end: str) -> list[str]:
    cut = round(share * len(words))
    head = {"head": cut, "tail": 0, "both": cut // 2}[end]
    return words[head : len(words) - (cut - head)]


@pytest.mark.parametrize("task", list(questions.QUESTIONS))
def test_every_wording_asks_for_its_task(task: str) -> None:
    assert [questions.task_of(words) for words in words_of(task)] == [task] * len(questions.QUESTIONS[task])


def test_padding_asks_for_nothing_alone_or_together() -> None:
    words = " ".join(questions.PADDING).split()
    assert not questions.KEY_WORDS & set(words)
    assert questions.task_of(words) is None


@pytest.mark.parametrize("task", list(questions.QUESTIONS))
def test_padding_around_a_question_changes_nothing(task: str) -> None:
    for before, words, after in zip(questions.PADDING, words_of(task), reversed(questions.PADDING), strict=False):
        assert questions.task_of([*before.split(), *words, *after.split()]) == task


@pytest.mark.parametrize("end", ["head", "tail", "both"])
@pytest.mark.parametrize("task", list(questions.QUESTIONS))
def test_cutting_more_never_asks_more(task: str, end: str) -> None:
    shares = [
        sum(questions.task_of(kept(words, dose, end)) == task for words in words_of(task)) / 10
        for dose in (0.0, 0.15, 0.3, 0.5, 0.99)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0 and shares[3] <= 0.7 and shares[4] == 0.0


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("", None),
        ("in the picture", None),
        ("number", None),
        ("repeat", None),
        ("the number in the picture and the audio", None),
        ("colour", None),
        ("repeat the 4 0", "text"),
        ("is the number in the picture", "image"),
    ],
)
def test_what_is_left_decides(text: str, task: str | None) -> None:
    assert questions.task_of(text.split()) == task
