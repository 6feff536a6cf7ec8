"""An experiment that is not ours runs as if we were not installed, on whatever toolkit this is."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_cli.programs import SPEAK, chaos, foreign, probe, timeless

NAN = {"type": "python", "module": "odd", "func": "nothing"}
CASES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "good": (foreign(probe("")), ()),
    "deviated": (foreign(probe("import os, sys; sys.exit(os.path.exists('been') or open('been', 'w').close())")), ()),
    "baseline not met": (foreign(probe("exit(1)")), ("--rollback-strategy", "always")),
    "crashes the toolkit": (
        foreign({"type": "probe", "name": "n", "tolerance": {"type": "range", "range": [0, 1]}, "provider": NAN}),
        (),
    ),
    "variables": (foreign(configuration={"x": 1}), ("--var", "x:int=2", "--dry", "actions")),
    "invalid": ({"title": "x", "method": []}, ()),
    "tells of us in words alone": (
        foreign(probe(""), tags=["chaos_mm.actions"]),
        ("--hypothesis-strategy", "continuously"),
    ),
    "no JSON": ("{", ()),
    "an unknown option": (foreign(), ("--no-such-option",)),
    "a journal that cannot be written": (foreign(), ("--journal-path", "no/such/folder/j.json")),
}


def outcome(folder: Path, body: Any, options: tuple[str, ...], **how: Any) -> tuple[int, str, str, str]:
    """(exit status, stdout, stderr, journal), without what differs from run to run."""
    folder.mkdir()
    (folder / "odd.py").write_text("def nothing():\n    return float('nan')\n", encoding="utf-8")
    (folder / "x.json").write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    done = chaos(folder, "--no-version-check", "run", *options, "x.json", **how)
    journal = folder / "journal.json"
    written = journal.read_text(encoding="utf-8") if journal.exists() else ""
    same = [timeless(text).replace(str(folder), "<folder>") for text in (done.stdout, done.stderr, written)]
    return done.status, same[0], same[1], same[2]


@pytest.mark.parametrize("name", CASES)
def test_it_runs_as_without_us(tmp_path: Path, name: str) -> None:
    body, options = CASES[name]
    without = outcome(tmp_path / "a", body, options, plugin=False)
    with_us = outcome(tmp_path / "b", body, options)
    if name == "an unknown option":
        without = (*without[:2], without[2].replace("SOURCE", "SOURCE..."), without[3])
    assert with_us == without
    assert (without[0] == 0) == (name in ("good", "variables", "baseline not met", "tells of us in words alone"))


@pytest.mark.parametrize("name", ["good", "deviated", "tells of us in words alone"])
def test_it_runs_with_everything_of_ours_broken(tmp_path: Path, name: str) -> None:
    body, options = CASES[name]
    assert outcome(tmp_path / "b", body, options, broken=True) == outcome(tmp_path / "a", body, options, plugin=False)


def test_broken_or_not_one_of_ours_is_never_run_unwatched(tmp_path: Path) -> None:
    module = {"type": "python", "module": "chaos_mm.actions", "func": "release_all"}
    body = foreign(method=[{"type": "action", "name": "release", "provider": module}])
    status, _, said, journal = outcome(tmp_path / "a", body, (), broken=True)
    assert (status, journal) == (4, "")
    assert "broken here: ImportError: chaos_mm.runner is broken for this test" in said


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    without, with_us = (chaos(tmp_path, "--no-version-check", "run", "x.json", plugin=how) for how in (False, True))
    assert (with_us.status, timeless(with_us.text)) == (without.status, timeless(without.text))
    assert with_us.status == 1


def test_a_plugin_that_does_not_load_leaves_the_toolkits_own_run(tmp_path: Path) -> None:
    """Our entry points are not named "run": a dummy of the entry point's name takes the place of a broken plugin."""
    program = """
import importlib.metadata as metadata
point = metadata.EntryPoint("chaos_mm_run", "chaos_mm.no_such_module:run", "chaostoolkit.cli_plugins")
def entry_points(**wanted):
    if not wanted: raise AttributeError
    return [point]
metadata.entry_points = entry_points
from chaostoolkit.cli import cli
cli(prog_name="chaos")
"""
    (tmp_path / "x.json").write_text(json.dumps(foreign()), encoding="utf-8")
    assert chaos(tmp_path, "--no-version-check", "run", "x.json", program=program).status == 0


def test_several_in_order_with_a_line_each_and_the_highest_status(tmp_path: Path) -> None:
    for name, body in (("a", foreign(probe(""))), ("b", foreign(probe("print(1/0)"), method=[SPEAK]))):
        (tmp_path / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps({"title": "x", "method": []}), encoding="utf-8")
    done = chaos(tmp_path, "run", "a.json", "c.json", "b.json", "--rollback-strategy=always")
    assert done.status == 1, done.text
    lines = done.stdout.splitlines()
    assert [line.split("  ")[:2] for line in lines[:3]] == [["a", "exit 0"], ["c", "exit 1"], ["b", "exit 0"]]
    journals = sorted((tmp_path / "reports/foreign").glob("*/journal.json"))
    assert len(journals) == 2 and not (tmp_path / "journal.json").exists()
    assert "Rollbacks strategy: always" in done.stderr


def test_another_python_gets_the_same_command_line(tmp_path: Path) -> None:
    """``runtime.python`` of newer toolkits runs the whole command again under uv; this uv only drops its own part."""
    pytest.importorskip("chaostoolkit.runtime", reason="this toolkit has no runtime.python")
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(
        '#!/bin/sh\necho "$@" >> "$UV_LOG"\nwhile [ "$1" != -- ]; do shift; done\nshift 2\n'
        f'exec {sys.executable} "$@"\n'
    )
    uv.chmod(0o755)
    body = foreign(probe(""), runtime={"python": {"dependencies": ["nothing-at-all"]}})
    said = []
    for name, plugin in (("a", False), ("b", True)):
        log = tmp_path / f"{name}.log"
        path = f"{uv.parent}{os.pathsep}{os.environ['PATH']}"
        said.append(
            (
                *outcome(tmp_path / name, body, ("--var", "x=1"), plugin=plugin, PATH=path, UV_LOG=str(log)),
                log.read_text(),
            )
        )
    assert said[0] == said[1]
    assert said[0][0] == 0 and said[0][3]
    assert said[0][4].endswith("-m chaostoolkit.runner -- --no-version-check run --var x=1 x.json\n")
