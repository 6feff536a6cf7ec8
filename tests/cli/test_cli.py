"""The door itself: lazy, and clear about what is wrong."""

import subprocess
import sys

import click
import pytest

from chaos_mm import cli as module
from chaos_mm.cli import COMMANDS, Entry, main
from tests.cli.conftest import Cli


def test_help_lists_every_command_and_loads_none(cli: Cli) -> None:
    shown = cli("--help")
    assert shown.exit_code == 0
    assert all(f"  {name} " in shown.output for name in COMMANDS)
    code = "import sys; from chaos_mm.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "PIL", "torch", "aiohttp", "chaoslib", "yaml", "chaos_mm.commands.demo", "chaos_mm.faults"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if not entry.extra])
def test_every_light_command_loads_and_explains_itself(cli: Cli, name: str) -> None:
    shown = cli(name, "--help")
    assert shown.exit_code == 0 and f"chaos-mm {name}" in shown.output


def test_a_misspelt_command_is_met_with_the_right_one(cli: Cli) -> None:
    shown = cli("demos")
    assert shown.exit_code == 2 and "did you mean 'demo'?" in shown.stderr


def test_our_errors_are_one_line_and_no_traceback(cli: Cli) -> None:
    shown = cli("faults", "show", "image_nose")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("Error: no fault 'image_nose'; there are: ")
    assert shown.stderr.count("\n") == 1


def test_a_missing_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setitem(COMMANDS, "absent", Entry("no_such_library_of_ours:command", "…", "proxy"))
    shown = cli("absent")
    assert shown.exit_code == 1
    assert "no_such_library_of_ours is not installed" in shown.stderr
    assert "pip install 'chaostoolkit-multimodal[proxy]'" in shown.stderr


def test_a_module_of_ours_that_is_missing_is_a_bug_and_shows_itself(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setitem(COMMANDS, "absent", Entry("chaos_mm.no_such_module:command", "…", "proxy"))
    with pytest.raises(ModuleNotFoundError):
        cli("absent")


def test_version_names_what_decides(cli: Cli) -> None:
    shown = cli("version").output
    assert "chaostoolkit-lib 1." in shown and "python 3." in shown


def test_main_is_a_click_group() -> None:
    assert isinstance(main, click.Group) and module.main is main
