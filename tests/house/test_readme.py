"""What the README says is so."""

import re
from typing import Any

import numpy as np

from chaos_mm.cli import COMMANDS
from chaos_mm.commands.faults import replaced
from chaos_mm.core.fault import Fault
from chaos_mm.core.media import Image
from chaos_mm.core.rng import Rng
from tests.contract import test_declarations, test_transforms
from tests.contract.samples import SAMPLERS
from tests.house.conftest import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_faults_table_is_fresh() -> None:
    text = README.read_text(encoding="utf-8")
    assert replaced(text, README) == text, "stale: chaos-mm faults table --write README.md"


def test_every_link_to_a_file_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_that_a_page_names_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"chaos-mm ([a-z]+)", page.read_text(encoding="utf-8")):
            assert name in COMMANDS, f"{page.name} names `chaos-mm {name}`"


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        for name in re.findall(r"`make ([a-z0-9-]+)", page.read_text(encoding="utf-8")):
            assert name in targets, f"{page.name} names `make {name}`"


def test_the_fault_of_the_guide_works() -> None:
    guide = (ROOT / "docs/writing-a-fault.md").read_text(encoding="utf-8")
    code = guide.partition("```python\n")[2].partition("```")[0]
    namespace: dict[str, Any] = {}
    exec(compile(code, "writing-a-fault.md", "exec"), namespace)
    darken = namespace["image_darkness"]
    assert isinstance(darken, Fault)
    test_declarations.test_name_begins_with_its_target_and_documentation_says_what_happens(darken)
    test_declarations.test_presets_are_valid_and_grow_with_severity(darken)
    test_transforms.test_dose_zero_returns_the_very_object(darken)
    test_transforms.test_damage_is_monotone_in_the_dose(darken)
    for label in SAMPLERS[darken.target].values():
        settings = darken.bind({"loss": 0.5})
        test_transforms.test_form_is_kept_input_is_not_mutated_and_evidence_is_finite(darken, label, settings)
    picture = Image(np.full((2, 2, 4), 200, np.uint8), "RGBA")
    darker, achieved = darken(picture, Rng.derive(0, "request", "part", darken.name), loss=0.5)
    assert darker.pixels[0, 0].tolist() == [100, 100, 100, 200]
    assert achieved == {"light_ratio": 0.5}
