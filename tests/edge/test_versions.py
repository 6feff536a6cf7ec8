"""What played the run, and the line that plays it again."""

import shlex
from typing import Any

import click
import pytest
from chaostoolkit.commands.run import run as chaos_run

from chaos_mm import __version__
from chaos_mm.controls.versions import replay, versions


def test_versions() -> None:
    found = versions()
    assert found["chaos_mm"] == __version__
    assert set(found) == {"chaos_mm", "chaostoolkit", "chaostoolkit-lib", "python", "platform"}
    assert all(found.values())
    assert found["chaostoolkit"][0].isdigit()


def replayed(*argv: str, environment: dict[str, str] | None = None, scrub: Any = str) -> str:
    context = chaos_run.make_context("run", list(argv))
    return replay(scrub, context, environment or {})


def test_what_was_typed_and_nothing_else() -> None:
    assert replayed("x.json") == "chaos run x.json"
    typed = ["--var", "sigma:float=0.4", "--var", "n:int=3", "--var", "who=a b", "--var", "deep:bool=true"]
    found = replayed(*typed, "--dry", "actions", "--no-validation", "--rollback-strategy", "always", "dir/my file.json")
    assert shlex.split(found) == [
        "chaos", "run", "--dry", "actions", "--no-validation", "--rollback-strategy", "always",
        "--var", "sigma:float=0.4", "--var", "n:int=3", "--var", "who=a b", "--var", "deep:bool=true",
        "dir/my file.json",
    ]  # fmt: skip


def test_it_is_its_own_replay() -> None:
    first = replayed("--var", "a:float=0.5", "--var", "b:json=[1, 2]", "--var", "c:bytes=xy", "--fail-fast", "f.json")
    assert replayed(*shlex.split(first)[2:]) == first


def test_where_output_goes_is_no_part_of_it() -> None:
    assert replayed("--journal-path", "/tmp/j.json", "x.json") == "chaos run x.json"


def test_lengths_and_rate_of_the_environment() -> None:
    environment = {
        "CHAOS_MM_FAULT_SECONDS": "5",
        "CHAOS_MM_LOAD_RATE": "12",
        "CHAOS_MM_TOKEN_FILE": "/x",
        "CHAOS_MM_RUNNER": "1",
        "HOME": "/h",
    }
    assert replayed("x.json", environment=environment) == (
        "CHAOS_MM_FAULT_SECONDS=5 CHAOS_MM_LOAD_RATE=12 chaos run x.json"
    )


def test_it_is_scrubbed() -> None:
    found = replayed("--var", "key=marker-1", "x.json", scrub=lambda text: text.replace("marker-1", "<secret>"))
    assert "marker-1" not in found and "key='<secret>'" in found


def test_several_sources_and_a_flag_that_says_no() -> None:
    @click.command()
    @click.option("--deep/--flat", default=True)
    @click.option("--name", "-n")
    @click.argument("source", nargs=-1)
    def several(**values: Any) -> None:
        raise AssertionError("never called")

    context = several.make_context("run", ["--flat", "-n", "x", "a.json", "b.json"])
    assert replay(str, context, {}) == "chaos run --flat --name x a.json b.json"


def test_outside_a_command_line_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replay(str) == ""


def test_a_variable_whose_name_says_secret_is_not_told() -> None:
    found = replayed("--var", "api_key=marker-1", "--var", "sigma:float=0.4", "x.json")
    assert found == "chaos run --var api_key='<secret>' --var sigma:float=0.4 x.json"
