"""The wheel alone: what is in it, what a plain install brings, and the whole demo from it, outside the clone.

Everything here builds and installs, so only ``make test-wheel`` and ``make test`` run it.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.house.conftest import ROOT
from tests.ports import free_ports

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]
MAX_WHEEL_BYTES = 16 << 20
HEAVY = {"numpy", "pillow", "torch", "transformers", "aiohttp", "scipy", "librosa", "cryptography"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "-w", str(folder), str(ROOT)], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


class Clean:
    """A new virtual environment, in a folder that is not the clone, with nothing of ours in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "venv/bin"
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CHAOS_MM_", "PYTHON"))}
        self.environment = {**kept, "CHAOS_MM_STATE_DIR": str(folder / "state"), "HOME": str(folder)}
        self.environment["PATH"] = f"{self.bin}:{kept['PATH']}"

    def run(self, *argv: str, timeout: float = 300, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**self.environment, **more}
        return subprocess.run(
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=timeout
        )

    def install(self, *what: str) -> None:
        # PIP_ settings of the machine stay in force; HOME is ours, so its cache would be lost.
        argv = (str(self.bin / "python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *what)
        done = self.run(*argv, HOME=os.environ["HOME"])
        assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Clean]:
    made = Clean(tmp_path_factory.mktemp("clean"))
    made.install(str(wheel))
    yield made
    made.run("chaos-mm", "demo", "down")


def test_it_carries_what_it_needs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("image-noise.json", "audio-spectral-mask.json", "text-token-truncation.json"):
        assert f"chaos_mm/_experiments/{name}" in names
    assert any(name.startswith("chaos_mm/_experiments/objectives/") for name in names)
    assert "chaos_mm/py.typed" in names
    assert any(name.startswith("chaos_mm/load/clips/") and name.endswith(".flac") for name in names)
    assert any(name.startswith("chaos_mm/target/assets/") and name.endswith(".safetensors") for name in names)
    assert "chaos_mm/target/assets/tokenizer.json" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"chaos_mm"}
    assert wheel.stat().st_size < MAX_WHEEL_BYTES


def test_a_plain_install_asks_for_nothing_heavy(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []
    plain = {line.split(";")[0].lower() for line in required if "extra ==" not in line}
    assert not {line for line in plain for heavy in HEAVY if line.startswith(heavy)}


def test_a_plain_install_brings_nothing_heavy_and_works(clean: Clean) -> None:
    listed = json.loads(clean.run("python", "-m", "pip", "list", "--format", "json").stdout)
    assert not HEAVY & {one["name"].lower() for one in listed}
    discovered = clean.run("chaos", "--no-version-check", "discover", "--no-install", "chaostoolkit-multimodal")
    assert discovered.returncode == 0, discovered.stderr[-2000:]
    found = json.loads((clean.folder / "discovery.json").read_text(encoding="utf-8"))["activities"]
    assert {"inject_image_noise", "release", "sli"} <= {one["name"] for one in found}
    for command in ("proxy", "load", "target", "demo"):
        refused = clean.run("chaos-mm", command)
        assert refused.returncode == 1 and refused.stderr.startswith("Error: "), refused.stderr[-2000:]
        assert "pip install 'chaostoolkit-multimodal[" in refused.stderr


def test_init_writes_valid_experiments(clean: Clean) -> None:
    assert clean.run("chaos-mm", "init", "mine").returncode == 0
    for path in sorted((clean.folder / "mine").glob("*.json")):
        valid = clean.run("chaos", "--no-version-check", "validate", str(path))
        assert valid.returncode == 0, valid.stdout[-2000:] + valid.stderr[-2000:]


@pytest.mark.long  # installs 1.6 GB; `make demo` plays the same from the clone
def test_the_demo_runs_from_the_wheel(clean: Clean, wheel: Path) -> None:
    clean.install(f"{wheel}[demo]")
    short = {f"CHAOS_MM_{phase}_SECONDS": "10" for phase in ("BASELINE", "FAULT", "RECOVERY")}
    done = clean.run("chaos-mm", "demo", "--base-port", str(free_ports(6)), **short)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    runs = json.loads((clean.folder / "reports/summary.json").read_text(encoding="utf-8"))["runs"]
    assert [(one["verdict"], one["expect"]) for one in runs] == [("passed", "passed")] * 3 + [("deviated", "deviated")]
    assert "Report: reports/index.html" in done.stdout
    assert clean.run("chaos-mm", "demo", "status").returncode == 1
