"""The exit status of a command is the verdict's, whatever the command itself ends with."""

from collections.abc import Callable

import click
import pytest
from click.globals import pop_context
from click.testing import CliRunner

from chaos_mm.controls.exit_code import ExitStatus
from chaos_mm.report.words import EXIT_CODES


def status_of(word: str, then: Callable[[click.Context], None], decides: bool = True) -> tuple[int, list[object]]:
    """(exit status of a command whose run had that verdict and that then goes on, what it was told as it left)"""
    told: list[object] = []

    @click.group()
    def chaos() -> None:
        pass

    @chaos.command()
    @click.pass_context
    def run(context: click.Context) -> None:
        status = ExitStatus(decides)
        status.install(told.append)
        status.word = word
        then(context)

    try:
        return CliRunner().invoke(chaos, ["run"]).exit_code, told
    finally:
        while click.get_current_context(silent=True):  # a process would be over by now
            pop_context()


def nothing(context: click.Context) -> None:
    pass


def breaks(context: click.Context) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize("word", sorted(EXIT_CODES))
@pytest.mark.parametrize("end", [nothing, lambda context: context.exit(1), lambda context: context.exit(0)])
def test_each_word(word: str, end: Callable[[click.Context], None]) -> None:
    assert status_of(word, end) == (EXIT_CODES[word], [None])


def test_without_a_verdict_it_is_an_error() -> None:
    assert status_of("", nothing)[0] == 4


@pytest.mark.parametrize(("word", "code"), [("passed", 4), ("deviated", 4), ("dry", 4), ("not_restored", 5)])
def test_a_command_that_breaks_after_its_verdict_did_not_end_well(word: str, code: int) -> None:
    status, (told,) = status_of(word, breaks)
    assert status == code
    assert isinstance(told, OSError)


def test_it_can_be_left_to_the_toolkit() -> None:
    assert status_of("not_restored", lambda context: context.exit(1), decides=False)[0] == 1
    assert status_of("not_restored", nothing, decides=False)[0] == 0


def test_without_a_command_line_nothing_happens() -> None:
    ExitStatus().install(lambda crash: None)
