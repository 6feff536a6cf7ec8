"""Options as words again."""

import logging
import sys
from pathlib import Path

import click
import pytest
from chaostoolkit.commands.run import run as original

from chaos_mm.chaos_cli import run
from chaos_mm.runner.options import given, of_the_group, refuse_one_file, toolkit


def found(*words: str) -> dict[str, tuple[str, ...]]:
    return given(run, click.Context(run), words)


def test_each_option_is_said_again_as_it_was_given() -> None:
    words = ("a.json", "--var", "x:int=1", "--fail-fast", "b.json", "--var", "y=--z", "--hypothesis-frequency", "2")
    assert found(*words) == {
        "var": ("--var=x:int=1", "--var=y=--z"),
        "hypothesis_frequency": ("--hypothesis-frequency=2",),
        "fail_fast": ("--fail-fast",),
    }


def test_what_was_not_given_is_not_said() -> None:
    assert found("a.json") == {}


def test_said_again_it_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text("{}", encoding="utf-8")
    words = [
        "--var",
        "x:int=1",
        "--var-file",
        str(tmp_path / "v.json"),
        "--dry",
        "actions",
        "--no-validation",
        "a.json",
    ]
    again = [word for said in found(*words).values() for word in said]
    first, second = (original.make_context("run", [*w]).params for w in (words, [*again, "--", "a.json"]))
    assert first == second


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--journal-path", "j"), "--journal-path names one file"), (("--journal-path=j",), "3 sources")],
)
def test_one_file_is_not_for_several_sources(words: tuple[str, ...], said: str) -> None:
    refuse_one_file(found(*words, "a"), 1)
    with pytest.raises(click.UsageError, match=said):
        refuse_one_file(found(*words, "a"), 3)


def test_the_agents_document_is_not_for_several_sources() -> None:
    refuse_one_file({"output_format": ("--output=text",)}, 2)
    with pytest.raises(click.UsageError, match="--output agent"):
        refuse_one_file({"output_format": ("--output=agent",)}, 2)


def test_options_of_the_group_and_its_log_go_on_to_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chaostoolkit.cli import cli

    log = logging.FileHandler(tmp_path / "x.log", delay=True)
    words = [
        "--verbose",
        "--settings",
        "s.yaml",
        "--change-dir",
        "/",
        "--log-format",
        "json",
        "--no-version-check",
        "run",
    ]
    monkeypatch.setattr(logging.getLogger("chaostoolkit"), "handlers", [log])
    assert of_the_group(cli.make_context("chaos", words)) == (
        "--no-version-check",
        "--verbose",
        "--log-format=json",
        "--settings=s.yaml",
        f"--log-file={tmp_path / 'x.log'}",
    )
    monkeypatch.setattr(logging.getLogger("chaostoolkit"), "handlers", [])
    assert of_the_group(cli.make_context("chaos", ["run"])) == ("--no-version-check",)


def test_children_look_for_modules_where_the_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    main = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert toolkit() == [sys.executable, "-P", "-m", "chaostoolkit"]
    main.__spec__ = object()  # type: ignore[assignment]
    assert toolkit() == [sys.executable, "-m", "chaostoolkit"]
