"""What the page over all runs shows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from chaos_mm.report.folder import RunReport
from chaos_mm.report.index_page import page
from tests.report.samples import DEVIATED, NOT_EXERCISED, PASSED


def test_totals_best_first_and_runs_newest_first(told: Callable[..., RunReport]) -> None:
    values = page([told(PASSED), told(DEVIATED), told(NOT_EXERCISED), told(replace(PASSED, expect="halted"))])
    assert values["totals"] == [("passed", "good", 2), ("deviated", "bad", 1), ("not exercised", "open", 1)]
    assert (values["count"], values["exit_code"], values["unexpected"]) == (4, 3, 1)
    assert [run["word"] for run in values["runs"]] == ["passed", "not exercised", "deviated", "passed"]
    assert [run["as_expected"] for run in values["runs"]] == [False, False, True, True]


def test_a_card_says_what_happened(told: Callable[..., RunReport]) -> None:
    (card,) = page([told(DEVIATED)])["runs"]
    facts = {
        "Fault": "image_noise (sigma 0.4)",
        "Requests changed": "57 of 57 selected",
        "Duration": "60.7 s",
        "Exit code": "1",
    }
    assert dict(card["facts"]) == facts and card["reason"].startswith("picture-answers: canary_exact is 0.08")
    assert card["meaning"] == "an objective was not met in its worst window"
    assert card["trail"]["name"] == "picture-answers" and card["trail"]["steps"][1][2] == "not met"


def test_a_run_without_anything_has_a_card(told: Callable[..., RunReport]) -> None:
    (card,) = page([replace(told(PASSED), told={}, leases=(), objectives=(), reasons=())])["runs"]
    assert card["trail"] is None and card["reason"] == "" and dict(card["facts"])["Fault"] == "none"


def test_an_address_is_quoted_whatever_the_folder_is_called(told: Callable[..., RunReport]) -> None:
    strange = replace(told(PASSED), folder=Path('/reports/a b#?%"<\udcff'))
    assert page([strange])["runs"][0]["href"] == "a%20b%23%3F%25%22%3C%FF/index.html"


def test_no_runs() -> None:
    assert page([])["runs"] == [] and page([])["exit_code"] == 0
