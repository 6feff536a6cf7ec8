"""The truth table in the docs is the one that the tests play."""

from chaos_mm.report.words import EXIT_CODES, WORDS
from tests.house.conftest import ROOT
from tests.truth.rows import ROWS
from tests.truth.table import page


def test_the_truth_table_is_fresh() -> None:
    text = (ROOT / "docs/truth-table.md").read_text(encoding="utf-8")
    assert text == page(), "stale: python -m tests.truth.table > docs/truth-table.md"


def test_each_row_stands_once_and_each_word_somewhere() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert {row.expected.word for row in ROWS} == set(WORDS)


def test_exit_codes_are_those_of_the_words() -> None:
    """But where the process was killed, and where the control was told to leave the status alone."""
    other = [row.name for row in ROWS if row.expected.exit_code != EXIT_CODES[row.expected.word]]
    assert all("SIGKILL" in name or "exit_code false" in name for name in other)


def test_nothing_of_ours_passes_that_was_not_injected_and_released() -> None:
    """But what was said beforehand to end the engine, and the agent in it."""
    other = ("another extension", "ends the engine")
    ours = [row for row in ROWS if not any(text in row.name for text in other)]
    passed = [row.expected for row in ours if row.expected.word == "passed"]
    assert {(one.gone, one.exit_code, one.journal) for one in passed} <= {
        ("release", 0, "completed"),
        ("limit", 0, "completed"),
    }
