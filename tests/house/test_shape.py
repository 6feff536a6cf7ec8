"""The shape of the code: short functions, short files, names that say something, nothing left unfinished."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.conftest import ROOT, own_files

SOURCES = own_files(".py")
PACKAGE = [path for path in SOURCES if path.is_relative_to(ROOT / "chaos_mm")]
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "base", "misc"}
# Written in two halves, so that this file does not hold them.
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|XX" + "X|NotImplemented" + "Error")
FOREIGN = re.compile(
    "/wo" + "rk/|/ro" + "ot/|pypi\\." + "org|python" + "hosted|download\\.py" + "torch|files\\.py" + "pi"
)


def functions(paths: list[Path]) -> Iterator[tuple[str, int]]:
    """Where and how long, from ``def`` to the last line."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def test_no_function_is_longer_than_60_lines() -> None:
    assert [where for where, length in functions(SOURCES) if length > 60] == []


def test_most_functions_are_short() -> None:
    lengths = [length for _, length in functions(PACKAGE)]
    assert statistics.median(lengths) <= 10
    assert statistics.quantiles(lengths, n=10)[-1] <= 30


def test_no_file_is_longer_than_400_lines() -> None:
    long = {
        str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


def test_every_module_of_the_package_says_what_it_is() -> None:
    silent = [
        str(p.relative_to(ROOT)) for p in PACKAGE if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))
    ]
    assert silent == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_something(path: Path) -> None:
    assert not FORBIDDEN_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # pictures, sound and weights have no words


def test_nothing_is_left_unfinished() -> None:
    assert [f"{p.relative_to(ROOT)}: {m[0]}" for p in SOURCES if (m := UNFINISHED.search(text_of(p)))] == []


def test_no_file_names_a_machine_or_a_package_index() -> None:
    assert [f"{p.relative_to(ROOT)}: {m[0]}" for p in own_files() if (m := FOREIGN.search(text_of(p)))] == []
