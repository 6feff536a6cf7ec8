"""What each part imports is what its extra brings, and every extra is pinned for CI."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.house.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
BROUGHT_BY_USERS = {"tiktoken"}  # a fault may be asked for an encoding of it, and says so where it is absent
BROUGHT_BY_VLLM = {"prometheus-client", "vllm"}  # the plugin lives inside a vLLM and brings none
HEAVY = {"numpy", "pillow", "torch", "transformers", "aiohttp", "scipy", "cryptography"}


def names(requirements: list[str]) -> set[str]:
    """Canonical distribution names, extras of our own left out."""
    found = {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in requirements}
    return found - {PROJECT["name"]}


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, top-level module) of everything imported that is neither ours nor the standard library's."""
    for path in folder.rglob("*.py") if folder.is_dir() else [folder]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            for module in modules:
                top = module.partition(".")[0]
                if top != "chaos_mm" and top not in sys.stdlib_module_names:
                    yield str(path.relative_to(ROOT)), top


@cache
def distributions(module: str) -> frozenset[str]:
    return frozenset(name.lower().replace("_", "-") for name in installed().get(module, [module]))


installed = cache(packages_distributions)


@pytest.mark.parametrize(
    ("part", "extra"), [(part, part) for part in ("proxy", "load", "target", "agent")] + [("host", "gpu")]
)
def test_an_extra_brings_what_its_part_imports(part: str, extra: str) -> None:
    brought = names(EXTRAS[extra]) | names(PROJECT["dependencies"])
    brought |= BROUGHT_BY_VLLM if part == "agent" else set()
    for path, module in imported(ROOT / "chaos_mm" / part):
        assert distributions(module) & brought, f"{path} imports {module}, which [{extra}] does not bring"


def test_faults_and_core_run_on_what_proxy_and_agent_bring() -> None:
    brought = names(EXTRAS["proxy"]) | names(EXTRAS["agent"]) | names(PROJECT["dependencies"])
    for part in ("core", "faults", "control"):
        for path, module in imported(ROOT / "chaos_mm" / part):
            known = distributions(module) & (brought | BROUGHT_BY_USERS)
            assert known, f"{path} imports {module}, which neither [proxy] nor [agent] brings"


def test_the_chaos_process_needs_nothing_heavy() -> None:
    assert not HEAVY & names(PROJECT["dependencies"])
    light = ["__init__.py", "actions.py", "probes.py", "tolerances.py", "cli.py", "controls", "sli", "commands", "demo"]
    for part in light:
        for path, module in imported(ROOT / "chaos_mm" / part):
            assert distributions(module) & names(PROJECT["dependencies"]), f"{path} imports {module}"


def test_no_extra_brings_what_nobody_imports() -> None:
    used = {name for path in ("chaos_mm", "training") for _, m in imported(ROOT / path) for name in distributions(m)}
    # transformers loads them by itself; the bench and dev tools are run, not imported by the package.
    used |= {"tokenizers", "safetensors"}
    for extra in ("proxy", "load", "target", "agent", "gpu"):
        assert names(EXTRAS[extra]) <= used, f"[{extra}] brings {sorted(names(EXTRAS[extra]) - used)} for nothing"


def test_ci_pins_all_of_it() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.match(r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+( ; python_version .*)?$", pin) for pin in pins), pins
    pinned = names(pins)
    for requirements in [PROJECT["dependencies"], *EXTRAS.values()]:
        assert names(requirements) <= pinned, f"constraints.txt lacks {sorted(names(requirements) - pinned)}"
    assert "torch==2.13.0" in pins
