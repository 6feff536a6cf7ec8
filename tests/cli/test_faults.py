"""The catalogue in words, and the README's table that nobody writes by hand."""

import json
from pathlib import Path

import pytest

from chaos_mm.commands.faults import BEGIN, END, table
from chaos_mm.commands.tables import aligned, markdown
from chaos_mm.faults import catalogue
from tests.cli.conftest import Cli


def test_list_has_every_fault_once(cli: Cli) -> None:
    lines = cli("faults", "list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(catalogue())
    assert [one["name"] for one in json.loads(cli("faults", "list", "--json").stdout)] == list(catalogue())


@pytest.mark.parametrize("name", list(catalogue()))
def test_show_has_every_parameter_and_a_usable_activity(cli: Cli, name: str) -> None:
    shown = cli("faults", "show", name).stdout
    assert all(parameter in shown for parameter in catalogue()[name].params)
    provider = json.loads(shown.partition("In an experiment:\n")[2])["provider"]
    assert provider["func"] == f"inject_{name}"
    ends = {key: provider["arguments"].pop(key) for key in ("ttl_seconds", "keepalive_seconds")}
    assert ends == {"ttl_seconds": 300, "keepalive_seconds": 10}  # without, the file breaks a rule
    assert catalogue()[name].bind(provider["arguments"]) == provider["arguments"]


def test_show_says_what_a_fault_does_to_an_engine(cli: Cli) -> None:
    for name, words in {
        "kv_cache_swap": ("Seam inside the engine: kv.", "canaries only"),
        "attention_error": ("Seam inside the engine: attention.", "Effect: an exception"),
        "process_kill": ("Effect: the process ends", "live traffic"),
        "embedding_rows": ("Effect: another number of rows",),
    }.items():
        shown = cli("faults", "show", name).stdout
        assert all(word in shown for word in words), shown
    assert "Seam" not in cli("faults", "show", "image_noise").stdout


def test_show_takes_the_name_that_its_experiment_has(cli: Cli) -> None:
    assert cli("faults", "show", "image-noise").stdout == cli("faults", "show", "image_noise").stdout


def test_write_then_check(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", encoding="utf-8")
    stale = cli("faults", "table", "--check", str(page))
    assert stale.exit_code == 1 and "stale" in stale.stderr
    assert cli("faults", "table", "--write", str(page)).exit_code == 0
    assert cli("faults", "table", "--check", str(page)).exit_code == 0
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{table()}\n{END}\nafter\n"


def test_a_page_without_the_marks_is_refused(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{END} {BEGIN}", encoding="utf-8")
    assert "must hold these two lines" in cli("faults", "table", "--write", str(page)).stderr
    assert page.read_text(encoding="utf-8") == f"{END} {BEGIN}"


def test_tables() -> None:
    assert aligned(("a", "b"), [("xyz", 1)]) == "a    b\nxyz  1"
    assert markdown(("a",), [("x|y\nz",)]) == "| a |\n| --- |\n| x\\|y z |"
