"""The verdict control's own arguments: names and values."""

from typing import Any

import pytest
from chaoslib.exceptions import InterruptExecution, InvalidActivity

from chaos_mm.controls import verdict
from chaos_mm.controls.arguments import Arguments, check
from chaos_mm.core.errors import InvalidParams

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lod_rate": 1}, "unknown argument 'lod_rate'; it takes 'exit_code', 'expect', 'load_rate', 'min_achieved'"),
    ({"load_rate": "fast"}, "load_rate='fast' is not allowed; it must be a number in"),
    ({"load_rate": -1}, "load_rate=-1"),
    ({"load_rate": float("nan")}, "load_rate=nan"),
    ({"expect": "fine"}, "expect='fine' is not allowed; it must be one of not_restored, error"),
    ({"expect": 3}, "expect=3"),
    ({"min_achieved": 3}, "min_achieved=3 is not allowed; it must be an object of names and numbers"),
    ({"min_achieved": {"psnr_db": "low"}}, "min_achieved="),
    ({"min_achieved": {"psnr_db": float("inf")}}, "min_achieved="),
    ({"exit_code": "no"}, "exit_code='no' is not allowed; it must be true or false"),
]


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_what_is_wrong_is_named_at_validation(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as told:
        check(given)
    assert text in str(told.value)
    with pytest.raises(InvalidActivity, match=r"chaos_mm\.controls\.verdict: "):
        verdict.validate_control({"name": "verdict", "provider": {"arguments": given}})


@pytest.mark.parametrize("given", [{}, {"load_rate": "${rate}"}, {"min_achieved": {"psnr_db": "${least}"}}])
def test_a_variable_is_judged_later(given: dict[str, Any]) -> None:
    verdict.validate_control({"name": "verdict", "provider": {"arguments": given}})


def test_they_are_read_with_variables_substituted() -> None:
    given = {"load_rate": "${rate}", "expect": "deviated", "min_achieved": {"psnr_db": 20}, "exit_code": False}
    assert Arguments.read(given, {"rate": 8}, {}) == Arguments(8.0, "deviated", {"psnr_db": 20.0}, False)
    with pytest.raises(InvalidParams, match="load_rate='fast'"):
        Arguments.read(given, {"rate": "fast"}, {})


def test_without_any_they_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAOS_MM_LOAD_RATE", raising=False)
    assert Arguments.read({}, None, None) == Arguments()
    monkeypatch.setenv("CHAOS_MM_LOAD_RATE", "4")
    assert Arguments.read({}, {}, {}).load_rate == 4.0


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_what_validation_did_not_see_is_refused_before_the_experiment(
    given: dict[str, Any], text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_MM_REPORTS", str(tmp_path))
    verdict.configure_control(experiment={"title": "t"}, **given)
    try:
        with pytest.raises(InterruptExecution) as told:
            verdict.before_experiment_control({})
    finally:
        verdict.cleanup_control()
    assert text in str(told.value)
