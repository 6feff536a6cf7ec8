"""The words, their order and their exit codes, as design §4 has them."""

import pytest

from chaos_mm.report.words import EXIT_CODES, MEANINGS, WORDS, first, highest


def test_the_worst_comes_first() -> None:
    assert first(["passed", "deviated", "error"]) == "error" and first(["dry"]) == "dry"
    assert WORDS[0] == "not_restored" and set(WORDS) == set(EXIT_CODES) == set(MEANINGS)


@pytest.mark.parametrize("words", [[], ["fine"], ["passed", ""]])
def test_no_word_and_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        first(words)


def test_the_highest_exit_code() -> None:
    assert (highest([]), highest([0, 5, 3])) == (0, 5)
