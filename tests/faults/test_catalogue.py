"""The catalogue: found by a scan and by entry points, light to import, and clear about what breaks its rules."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import pytest

from chaos_mm import faults
from chaos_mm.core.errors import UnknownFault
from chaos_mm.core.fault import Fault, Param, Target, fault

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "PIL", "torch", "scipy", "stringzilla", "cryptography", "tokenizers", "aiohttp", "chaoslib", "yaml")


@fault(Target.TEXT)
def text_shout(text: Any, rng: Any, *, amount: Annotated[float, Param("how loud", ge=0, le=1)] = 1.0) -> Any:
    """Shout."""
    return text.upper()


def test_the_catalogue_holds_the_faults_of_the_folder_in_order():
    found = faults.catalogue()
    assert list(found) == sorted(found)
    assert {"audio_spectral_mask", "image_noise", "text_token_truncation"} <= set(found)
    assert all(isinstance(value, Fault) and value.name == name for name, value in found.items())
    assert faults.catalogue() is found


def test_get_names_what_there_is():
    assert faults.get("image_noise") is faults.catalogue()["image_noise"]
    with pytest.raises(UnknownFault, match="no fault 'image_nose'; there are: .*image_noise"):
        faults.get("image_nose")


def _run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


def test_the_catalogue_loads_nothing_heavy():
    code = (
        "import sys; from chaos_mm.faults import catalogue; catalogue(); print(*{m.split('.')[0] for m in sys.modules})"
    )
    assert not set(_run(code).split()) & set(HEAVY)


def test_the_catalogue_costs_a_fraction_of_what_the_toolkit_itself_does():
    code = (
        "import time\n"
        "start = time.process_time()\n"
        "import chaoslib.experiment, chaoslib.run\n"
        "toolkit = time.process_time()\n"
        "import chaos_mm.core.fault, chaos_mm.core.rng\n"
        "core = time.process_time()\n"
        "from chaos_mm.faults import catalogue\n"
        "catalogue()\n"
        "print((time.process_time() - core) / (toolkit - start))"
    )
    assert min(float(_run(code)) for _ in range(5)) < 0.4


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([("faults/text_shout.py", "text_shout", None)], "faults/text_shout.py must hold a fault named 'text_shout'"),
        ([("faults/text_shout.py", "text_shout", lambda text: text)], "declared with @fault"),
        ([("faults/text_cry.py", "text_cry", text_shout)], "faults/text_cry.py holds the fault 'text_shout'"),
        (
            [("faults/text_shout.py", "text_shout", text_shout), ("entry point x", "text_shout", text_shout)],
            "'text_shout' stands twice: in faults/text_shout.py and in entry point x",
        ),
    ],
)
def test_what_breaks_the_rules_is_refused_naming_the_place(sources: list[tuple[str, str, Any]], words: str):
    with pytest.raises(TypeError) as caught:
        faults.collect(sources)
    assert words in str(caught.value)


def test_a_third_party_s_entry_point_joins_the_catalogue():
    entry = EntryPoint("text_shout", "tests.faults.test_catalogue:text_shout", faults.GROUP)
    found = faults.collect(list(faults.third_parties([entry])))
    assert found["text_shout"].name == "text_shout"


@pytest.mark.parametrize("value", ["no_such_module:text_shout", "tests.faults.test_catalogue:no_such_fault"])
def test_an_entry_point_that_does_not_load_is_named(value: str):
    with pytest.raises(TypeError, match="entry point 'text_shout' of chaos_mm.faults"):
        list(faults.third_parties([EntryPoint("text_shout", value, faults.GROUP)]))


BROKEN = '''
"""A file that breaks the rules."""
from typing import Annotated, Any
from chaos_mm.core.fault import Param, Target, fault

@fault(Target.TEXT)
def text_broken(text: Any, rng: Any, *, {parameter}) -> Any:
    """{doc}"""
    return text
'''


@pytest.mark.parametrize(
    ("parameter", "doc", "words"),
    [
        ("amount: float = 1.0", "Break.", "parameter 'amount' must be Annotated"),
        ('rate: Annotated[float, Param("how often", ge=0, le=1)] = 1.0', "Break.", "words of the frame"),
        ('amount: Annotated[float, Param("how much", ge=0, le=1)] = 1.0', "", "a fault's docstring"),
    ],
)
def test_a_file_that_breaks_the_rules_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str, doc: str, words: str
):
    package = tmp_path.name
    (tmp_path / package).mkdir()
    (tmp_path / package / "text_broken.py").write_text(BROKEN.format(parameter=parameter, doc=doc))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TypeError) as caught:
        list(faults.files(package))
    assert f"{package}/text_broken.py: text_broken" in str(caught.value) and words in str(caught.value)
