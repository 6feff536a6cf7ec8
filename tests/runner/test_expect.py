"""Expected words, and the exit status of a game day."""

import pytest

from chaos_mm.runner.expect import exit_status, words_for
from tests.runner.runs import ended


@pytest.mark.parametrize(
    ("given", "words"),
    [((), ["", ""]), (("deviated",), ["deviated", "deviated"]), (("passed", "halted"), ["passed", "halted"])],
)
def test_once_for_all_or_once_for_each(given: tuple[str, ...], words: list[str]) -> None:
    assert words_for(given, 2) == words


@pytest.mark.parametrize(
    ("given", "said"), [(("failed",), "'failed' is no verdict"), (("passed",) * 3, "3 times for 2")]
)
def test_what_cannot_be_expected(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        words_for(given, 2)


def test_all_as_expected_is_0_whatever_their_own_status() -> None:
    assert exit_status([ended(), ended("deviated", 1, "deviated"), ended("not_exercised", 3, "not_exercised")], 3) == 0


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        ([ended("deviated", 1), ended("no_data", 3)], 3),
        ([ended("passed", 0, "deviated")], 1),
        ([ended("not_restored", 5), ended("error", 4)], 5),
        ([ended("interrupted", 4, "interrupted"), ended("deviated", 1)], 1),
        ([ended("error", -9)], 4),
    ],
)
def test_the_highest_of_the_unexpected_and_at_least_1(runs: list[object], status: int) -> None:
    assert exit_status(runs, len(runs)) == status  # type: ignore[arg-type]


def test_a_list_that_was_stopped_counts_as_interrupted() -> None:
    assert exit_status([ended()], 2) == 4
