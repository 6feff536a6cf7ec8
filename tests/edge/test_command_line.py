"""What the toolkit was asked to do, what of it is refused, and the journal of an earlier run."""

from pathlib import Path
from typing import Any

import click
import pytest
from chaoslib.types import Dry

from chaos_mm.controls.command_line import CommandLine, make_way

ALWAYS = {"runtime": {"rollbacks": {"strategy": "always"}}}


def read(experiment: dict[str, Any], **given: Any) -> CommandLine:
    """As under ``chaos run`` with these options."""
    context = click.Context(click.Command("run"))
    context.params = {"source": "folder/image-noise.json", "journal_path": "./journal.json", **given}
    with context:
        return CommandLine.read(experiment)


def reasons(command: CommandLine) -> list[str]:
    found = list(command.refusals())
    assert {one.word for one in found} <= {"error"}
    return [one.reason for one in found]


def test_a_file_that_pins_its_rollbacks_is_taken() -> None:
    command = read(ALWAYS)
    assert reasons(command) == []
    assert (command.stem, command.journal_path, command.dry) == ("image-noise", "./journal.json", "")


def test_without_a_command_line_the_file_stands() -> None:
    assert CommandLine.read(ALWAYS) == CommandLine(rollbacks="always")


@pytest.mark.parametrize(
    ("experiment", "given", "strategy"),
    [
        ({}, {}, "default"),
        ({"runtime": {"hypothesis": {"strategy": "default"}}}, {}, "default"),
        ({"runtime": {"rollbacks": {"strategy": "deviated"}}}, {}, "deviated"),
        (ALWAYS, {"rollback_strategy": "never"}, "never"),
    ],
)
def test_any_other_strategy_of_rollbacks_is_refused(experiment: Any, given: Any, strategy: str) -> None:
    (reason,) = reasons(read(experiment, **given))
    assert f"by the strategy '{strategy}'" in reason


def test_the_command_line_may_pin_them_for_a_file_that_does_not() -> None:
    assert reasons(read({}, rollback_strategy="always")) == []


@pytest.mark.parametrize("strategy", ["continuously", "continously", "before-method-only", "during-method-only"])
def test_other_strategies_of_the_hypothesis_are_refused(strategy: str) -> None:
    (by_hand,) = reasons(read(ALWAYS, hypothesis_strategy=strategy))
    assert repr(strategy) in by_hand
    runtime = {"runtime": {**ALWAYS["runtime"], "hypothesis": {"strategy": strategy}}}
    assert len(reasons(read(runtime))) == 1


@pytest.mark.parametrize(("dry", "refused"), [("actions", 0), ("activities", 0), ("probes", 1), ("pause", 1)])
def test_dry_runs(dry: str, refused: int) -> None:
    command = read({**ALWAYS, "dry": Dry.from_string(dry)})
    assert command.dry == dry
    assert len(reasons(command)) == refused
    assert read({**ALWAYS, "dry": None}).dry == ""


def test_several_sources_are_no_concern_of_a_run_of_one() -> None:
    assert read(ALWAYS, source=("a/first.yaml",)).stem == "first"
    assert read(ALWAYS, source=()).stem == ""


def test_an_old_journal_is_moved_away_and_no_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    make_way(str(path), "r1")
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    make_way(str(path), "r1")
    assert [one.name for one in tmp_path.iterdir()] == ["journal.json.previous"]
    assert (tmp_path / "journal.json.previous").read_text() == "old"


def test_a_journal_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        make_way(str(tmp_path / "nowhere" / "journal.json"), "r1")
    with pytest.raises(OSError, match="Is a directory"):
        make_way(str(tmp_path), "r1")


def test_a_device_will_do() -> None:
    make_way("/dev/null", "r1")
    assert Path("/dev/null").exists()
