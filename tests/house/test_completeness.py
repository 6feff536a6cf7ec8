"""A fault is a file, its test, and an experiment that injects it; whoever forgets one is told what is missing."""

import json
from collections.abc import Iterator

import pytest

from chaos_mm.controls.rules import injected_fault, injections
from chaos_mm.faults import catalogue
from tests.house.conftest import ROOT

OURS = [name for name in catalogue() if (ROOT / f"chaos_mm/faults/{name}.py").is_file()]


def injected() -> Iterator[str]:
    """Every fault that an experiment of the repository injects."""
    for path in (ROOT / "experiments").rglob("*.json"):
        for one in injections(json.loads(path.read_text(encoding="utf-8"))):
            yield injected_fault(one)


def test_there_are_faults() -> None:
    assert {"image_noise", "audio_spectral_mask", "text_token_truncation", "kv_cache_noise"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_every_fault_has_its_test(name: str) -> None:
    path = f"tests/faults/test_{name}.py"
    assert (ROOT / path).is_file(), f"the fault {name} lacks {path}; CONTRIBUTING.md says what belongs there"


def test_every_fault_is_injected_by_an_experiment() -> None:
    missing = set(OURS) - set(injected())
    assert not missing, f"no file under experiments/ injects {sorted(missing)}; CONTRIBUTING.md says what belongs there"


@pytest.mark.parametrize("path", sorted((ROOT / "tests/faults").glob("test_*.py")), ids=lambda path: path.name)
def test_no_test_outlives_its_fault(path: object) -> None:
    name = str(path).rpartition("/test_")[2].removesuffix(".py")
    about_all = {"catalogue", "tensors"}
    assert name in OURS or name in about_all, f"{path}: there is no fault {name!r}"
