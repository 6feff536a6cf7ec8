"""What we rely on in Chaos Toolkit without it being promised, and what importing us costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaoslib import activity, control, run
from chaoslib.control.python import apply_python_control
from chaoslib.discovery.discover import portable_type_name
from chaoslib.provider.python import validate_python_activity

from chaos_mm.controls.signals import BETWEEN
from tests.edge.chaos import Chaos, experiment
from tests.edge.chaos import activity as ours

HEAVY = ("numpy", "PIL", "torch", "aiohttp", "transformers", "soundfile", "cryptography", "scipy")
MEASURE = """
import sys, time
began = time.process_time()
import chaoslib.experiment, chaoslib.run
toolkit, before = time.process_time(), set(sys.modules)
import chaos_mm.actions
print((time.process_time() - toolkit) / (toolkit - began), *(set(sys.modules) - before))
"""


def test_the_private_names_of_the_engine_exist() -> None:
    names = set(dir(run)) | set(dir(activity)) | set(dir(control.Control))
    assert names >= {*BETWEEN, "run_rollback", "execute_activity"}
    assert all("chaoslib" in (module.__file__ or "") for module in (run, activity, control))


def test_the_hooks_and_the_validation_are_where_they_were() -> None:
    assert callable(apply_python_control)
    assert callable(validate_python_activity)
    assert callable(portable_type_name)


def test_the_toolkit_still_validates_by_binding(chaos: Chaos) -> None:
    """Were ``bind`` of a signature no longer called, bad values would pass ``chaos validate`` unseen."""
    assert chaos.validate(experiment(ours("inject_image_noise", sigma=2))).status == 1


def test_importing_the_actions_is_cheap(tmp_path: Path) -> None:
    """CPU time as a share of what the toolkit takes to load, with compiled files as any installation has them.

    On a core of its own that is some 50 ms; a share holds on a busy one too.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    argv = [sys.executable, "-c", MEASURE]
    found = [
        subprocess.run(argv, capture_output=True, text=True, check=True, env=environment).stdout.split()
        for _ in range(8)
    ]
    assert min(float(first) for first, *_ in found) <= 0.5
    assert not {name.partition(".")[0] for name in found[0][1:]} & set(HEAVY)


@pytest.mark.parametrize("module", ["", ".actions", ".probes", ".tolerances", ".controls.verdict"])
def test_nothing_heavy_is_loaded(module: str, tmp_path: Path) -> None:
    code = f"import chaos_mm{module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & set(HEAVY)
    assert module or not {name for name in loaded if name.startswith(("chaoslib", "click", "yaml"))}
