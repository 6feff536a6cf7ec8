"""benchmarks/gpu_check.sh: refused in words without a GPU; its rows on a fake device and on the CPU's flash kernel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_check
from chaos_mm.host import nvml
from tests.host.book import SLEEPER, started

FAKES = Path(__file__).parent / "fake_cuda"
ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@pytest.mark.skipif(nvml.absence() == "", reason="there is an NVIDIA device here")
def test_without_a_gpu_it_says_so_and_runs_nothing():
    env = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(["benchmarks/gpu_check.sh"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == gpu_check.NO_GPU_EXIT
    assert done.stdout == "" and done.stderr.startswith("gpu_check: nothing was run: no NVIDIA device: ")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    folder = tmp_path / "device"
    folder.mkdir()
    (folder / "total").write_text(str(8192 * MIB))
    monkeypatch.setenv("FAKE_CUDA", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return folder


@pytest.fixture(autouse=True)
def _no_fake_left() -> object:
    yield
    sys.modules.pop("pynvml", None)


def test_every_memory_row_is_ok_on_a_device_that_works(device: Path, tmp_path: Path):
    rows = list(gpu_check.memory_rows(gpu_check.Host(tmp_path, 0, shared=False)))
    assert [(row.name.split()[0].rstrip(","), row.ok) for row in rows] == [
        (name, True) for name in ("fill", "spike", "fragment", "out", "restore:")
    ], rows


def test_rows_are_not_ok_on_a_device_that_others_use(device: Path, tmp_path: Path):
    with started(SLEEPER) as other:
        (device / str(other.pid)).write_text(str(100 * MIB))
        first = next(gpu_check.memory_rows(gpu_check.Host(tmp_path, 0, shared=False)))
    assert not first.ok and f"is used by processes {other.pid}" in first.told


@pytest.mark.model
def test_every_attention_row_is_ok_on_the_flash_kernel_of_the_cpu():
    import torch

    torch.set_num_threads(1)
    flash = gpu_check.Flash(torch, "cpu", torch.float32, tokens=64)
    rows = list(gpu_check.attention_rows(flash))
    assert [row.ok for row in rows] == [True] * 3, rows
    assert "flash" in rows[0].told


def test_the_table_names_what_failed():
    text = gpu_check.table({"device": "x"}, [gpu_check.Row("fill", True, "a"), gpu_check.Row("hang", False, "b")])
    assert text.splitlines()[-2:] == ["| fill | ok | a |", "| hang | NOT OK | b |"]
