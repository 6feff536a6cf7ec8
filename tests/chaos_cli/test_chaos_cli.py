"""The commands: their help, their usage, and what they refuse before anything runs."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_cli.programs import REPOSITORY, chaos, foreign

CONTROL = {"name": "verdict", "provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}
RELEASE = {
    "type": "action",
    "name": "release",
    "provider": {"type": "python", "module": "chaos_mm.actions", "func": "release_all"},
}


def write(folder: Path, **bodies: Any) -> None:
    for name, body in bodies.items():
        (folder / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")


def test_help_differs_in_source_alone(tmp_path: Path) -> None:
    without, with_us = (chaos(tmp_path, "run", "--help", plugin=how).stdout for how in (False, True))
    assert without.count("[OPTIONS] SOURCE") == 1
    assert with_us == without.replace("[OPTIONS] SOURCE", "[OPTIONS] SOURCE...")


def test_gameday_has_every_option_of_run(tmp_path: Path) -> None:
    run, gameday = (chaos(tmp_path, *words, "--help").stdout for words in (("run",), ("gameday", "run")))
    options = [line.split()[0] for line in run.splitlines() if line.startswith("  --")]
    assert "--journal-path" in options
    assert [option for option in options if option not in gameday] == []
    assert "--expect WORD" in gameday


def test_importing_the_plugin_loads_nothing_else_of_ours() -> None:
    code = "import sys, chaos_mm.chaos_cli; print([m for m in sys.modules if m.startswith('chaos_mm')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['chaos_mm', 'chaos_mm.chaos_cli']"


def test_a_toolkit_whose_run_is_another_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("chaostoolkit.commands.run")
    import chaos_mm.chaos_cli as plugin

    try:
        for future in (object(), type("Command", (), {"params": []})()):
            monkeypatch.setattr(module, "run", future)
            assert importlib.reload(plugin).run is future
    finally:
        monkeypatch.undo()
        importlib.reload(plugin)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--journal-path", "j.json"), "--journal-path names one file, and there are 2 sources"),
        (("--no-such",), "No such option"),
    ],
)
def test_usage_errors_of_several_sources_exit_2(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    write(tmp_path, a=foreign(), b=foreign())
    done = chaos(tmp_path, "run", *options, "a.json", "b.json")
    assert done.status == 2
    assert said in done.stderr
    assert not (tmp_path / "reports").exists()


def test_one_output_file_of_newer_toolkits_is_refused_too(tmp_path: Path) -> None:
    write(tmp_path, a=foreign(), b=foreign())
    if "--events-file" not in chaos(tmp_path, "run", "--help").stdout:
        pytest.skip("this toolkit has neither --events-file nor --output")
    for options, said in ((("--events-file", "e"), "--events-file names one"), (("--output", "agent"), "one document")):
        done = chaos(tmp_path, "run", *options, "a.json", "b.json")
        assert (done.status, said in done.stderr) == (2, True), done.stderr
    assert chaos(tmp_path, "gameday", "run", "--output", "agent", "a.json").status == 2


@pytest.mark.parametrize("bad", ["missing", "broken", "list", "unwatched", "text"])
def test_every_source_is_looked_at_before_the_first_runs(tmp_path: Path, bad: str) -> None:
    write(tmp_path, a=foreign(), list=[1], unwatched=foreign(method=[RELEASE]))
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    name = "text.txt" if bad == "text" else f"{bad}.json"
    (tmp_path / "text.txt").write_text("{}", encoding="utf-8")
    for command in (("run",), ("gameday", "run")):
        done = chaos(tmp_path, *command, "a.json", name)
        assert done.status == 4, done.text
        assert name in done.text
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("control", ["none", "not automatic", "another"])
def test_ours_without_our_verdict_is_refused_in_one_sentence(tmp_path: Path, control: str) -> None:
    provider = {"type": "python", "module": "chaos_mm.controls.none_such"}
    controls = {
        "none": [],
        "not automatic": [{**CONTROL, "automatic": False}],
        "another": [{"name": "x", "provider": provider}],
    }
    write(tmp_path, x=foreign(method=[RELEASE], controls=controls[control]))
    done = chaos(tmp_path, "--no-version-check", "run", "x.json")
    assert done.status == 4
    assert len(done.text.strip().splitlines()) == 1
    assert "not the control chaos_mm.controls.verdict, so nothing was run" in done.text
    assert not (tmp_path / "journal.json").exists()


@pytest.mark.parametrize("expect", [("nonsense",), ("passed", "passed")])
def test_expect_takes_a_verdict_once_or_once_a_source(tmp_path: Path, expect: tuple[str, ...]) -> None:
    write(tmp_path, a=foreign(), b=foreign(), c=foreign())
    words = [word for one in expect for word in ("--expect", one)]
    done = chaos(tmp_path, "gameday", "run", "a.json", "b.json", "c.json", *words)
    assert done.status == 2, done.text
    assert "--expect" in done.stderr


def test_gameday_exits_0_only_when_each_run_ended_as_expected(tmp_path: Path) -> None:
    write(tmp_path, a=foreign(), b=foreign())
    assert chaos(tmp_path, "gameday", "run", "a.json", "b.json").status == 0
    done = chaos(tmp_path, "gameday", "run", "a.json", "b.json", "--expect", "passed", "--expect", "deviated")
    assert done.status == 1
    assert "b           exit 0   no: deviated" in done.stdout, done.stdout


def test_reports_that_cannot_be_made_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, a=foreign(), b=foreign())
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = chaos(tmp_path, "run", "a.json", "b.json", CHAOS_MM_REPORTS=str(tmp_path / "file"))
    assert done.status == 4
    assert "CHAOS_MM_REPORTS says where they go" in done.text


def test_a_folder_is_answered_with_what_to_type(tmp_path: Path) -> None:
    write(tmp_path, a=foreign())
    (tmp_path / "mine").mkdir()
    one, several = chaos(tmp_path, "run", "mine/"), chaos(tmp_path, "run", "a.json", "mine")
    assert (one.status, several.status) == (2, 4)
    for done in (one, several):
        assert "is a folder; name the files in it: mine/*.json" in done.text


@pytest.mark.parametrize("others", [(), ("b.json",)])
def test_a_misspelt_variable_is_refused_for_ours(tmp_path: Path, others: tuple[str, ...]) -> None:
    write(tmp_path, x=foreign(method=[RELEASE], controls=[CONTROL], configuration={"sigma": 0.1}), b=foreign())
    done = chaos(tmp_path, "--no-version-check", "run", "--var", "sigm:float=0.6", "x.json", *others)
    assert (done.status, len(done.text.strip().splitlines())) == (4, 1), done.text
    assert "--var sigm: no configuration has that name, so nothing was run; did you mean sigma?" in done.text
    assert not (tmp_path / "journal.json").exists()
