"""A fault is three files; whoever forgets one is told its path."""

import pytest

from chaos_mm.faults import catalogue
from tests.house.conftest import ROOT

OURS = [name for name in catalogue() if (ROOT / f"chaos_mm/faults/{name}.py").is_file()]


def test_there_are_faults() -> None:
    assert {"image_noise", "audio_spectral_mask", "text_token_truncation"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("pattern", ["tests/faults/test_{name}.py", "experiments/{dashed}.json"])
def test_every_fault_has_its_test_and_its_experiment(name: str, pattern: str) -> None:
    path = pattern.format(name=name, dashed=name.replace("_", "-"))
    assert (ROOT / path).is_file(), f"the fault {name} lacks {path}; CONTRIBUTING.md says what belongs there"


@pytest.mark.parametrize("path", sorted((ROOT / "tests/faults").glob("test_*.py")), ids=lambda path: path.name)
def test_no_test_outlives_its_fault(path: object) -> None:
    name = str(path).rpartition("/test_")[2].removesuffix(".py")
    about_the_frame = {"catalogue"}
    assert name in OURS or name in about_the_frame, f"{path}: there is no fault {name!r}"
