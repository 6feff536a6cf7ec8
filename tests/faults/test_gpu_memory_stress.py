"""Device memory is taken, kept above its floor, and given back: on a fake device (tests/host/fake_cuda), whose own
books are the oracle. That a real one does the same is what benchmarks/gpu_check.sh shows.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.core.errors import ChaosMMError, InvalidParams, NotInjectable
from chaos_mm.core.host import MIB
from chaos_mm.faults.gpu_memory_stress import gpu_memory_stress
from chaos_mm.host import gpu, nvml
from tests.host.book import SLEEPER, body, held, opened, started, wait_for

FAKES = Path(__file__).parents[1] / "host/fake_cuda"
TOTAL = 8192 * MIB


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is the device; the fakes stand where torch and NVML would, in this process and in children."""
    folder = tmp_path / "device"
    folder.mkdir()
    (folder / "total").write_text(str(TOTAL))
    monkeypatch.setenv("FAKE_CUDA", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield folder
    sys.modules.pop("pynvml", None)


def used(folder: Path) -> int:
    """Bytes that living processes hold, by the device's own books."""
    return sum(int(path.read_text() or 0) for path in folder.glob("[0-9]*") if Path(f"/proc/{path.name}").exists())


def test_a_fill_takes_its_share_and_all_of_it_comes_back(device: Path, tmp_path: Path):
    with held(gpu_memory_stress, tmp_path, share=0.5, ramp_seconds=0) as lease:
        assert lease.applied == 1
        assert abs(used(device) - TOTAL // 2) <= 64 * MIB
        assert lease.engine["device"] == "fake device"
        assert lease.achieved["held_bytes"].total == pytest.approx(TOTAL / 2, abs=64 * MIB)
    assert used(device) == 0
    assert lease.undo is not None and lease.undo.proven
    assert lease.undo.figures["device_free_bytes"] == TOTAL


def test_more_share_holds_more(device: Path, tmp_path: Path):
    found = []
    for share in (0.25, 0.5, 0.9):
        with held(gpu_memory_stress, tmp_path, share=share, ramp_seconds=0):
            found.append(used(device))
    assert found == sorted(found) and found[0] < found[2]


def test_the_floor_stays_free(device: Path, tmp_path: Path):
    with held(gpu_memory_stress, tmp_path, share=1.0, floor_mib=1024, ramp_seconds=0):
        assert TOTAL - used(device) == pytest.approx(1024 * MIB, abs=1)


def test_a_leak_grows_while_it_is_held(device: Path, tmp_path: Path):
    how = {"pattern": "leak", "leak_mib_per_second": 512, "block_mib": 16, "share": 0.9}
    with held(gpu_memory_stress, tmp_path, **how):
        early = used(device)
        wait_for(lambda: used(device) > early + 256 * MIB, "it grows")
    assert used(device) == 0


def test_a_spike_comes_and_goes(device: Path, tmp_path: Path):
    how = {"pattern": "spike", "period_seconds": 1.0, "ramp_seconds": 0, "share": 0.5}
    with held(gpu_memory_stress, tmp_path, **how):
        wait_for(lambda: used(device) < TOTAL // 10, "it goes")
        wait_for(lambda: used(device) > TOTAL // 3, "it comes")


def test_fragments_leave_half_and_tell_the_largest_block(device: Path, tmp_path: Path):
    how = {"pattern": "fragment", "share": 0.5, "ramp_seconds": 0, "block_mib": 256}
    with held(gpu_memory_stress, tmp_path, **how) as lease:
        assert used(device) == pytest.approx(TOTAL / 4, abs=256 * MIB)
        assert lease.achieved["largest_free_block_bytes"].total > 0


def refusal_of(tmp_path: Path, **params: Any) -> str:
    """Why it did not come to be: the answer itself, or evidence where it came after the answer."""
    book, holds, _ = opened(gpu_memory_stress, tmp_path)
    try:
        lease = book.put("a", body(gpu_memory_stress, **params))
    except NotInjectable as error:
        return str(error)
    wait_for(lambda: lease.errored, "it fails")
    book.close()
    assert holds.wait(10.0) and lease.undo is not None
    return lease.undo.reason


def test_a_device_that_is_not_the_engine_s_alone_is_refused_by_name(device: Path, tmp_path: Path):
    with started(SLEEPER) as engine, started(SLEEPER) as neighbour:
        (device / str(engine.pid)).write_text(str(100 * MIB))
        assert f"is used by processes {engine.pid} beside the chosen one" in refusal_of(tmp_path)
        (device / str(neighbour.pid)).write_text(str(100 * MIB))
        assert f"is used by processes {neighbour.pid} beside" in refusal_of(tmp_path, pid=engine.pid)
        with held(gpu_memory_stress, tmp_path, shared=True, ramp_seconds=0, share=0.5) as lease:
            assert lease.applied == 1
        (device / str(neighbour.pid)).unlink()
        with held(gpu_memory_stress, tmp_path, pid=engine.pid, ramp_seconds=0, share=0.5) as lease:
            assert lease.applied == 1


@pytest.mark.parametrize(
    ("name", "text", "why"), [("mig", "1", "partitioned (MIG)"), ("mps", "7 9", "MPS by processes 7, 9")]
)
def test_a_shared_device_is_refused_unless_that_is_said(device: Path, tmp_path: Path, name: str, text: str, why: str):
    (device / name).write_text(text)
    assert why in refusal_of(tmp_path)
    with held(gpu_memory_stress, tmp_path, shared=True, ramp_seconds=0, share=0.5) as lease:
        assert lease.applied == 1


def test_a_mode_that_is_off_is_no_partition(device: Path):
    (device / "mig").write_text("0")
    assert nvml.facts(0).mig is False


def test_no_more_than_the_floor_and_no_such_device_are_refused(device: Path, tmp_path: Path):
    assert "no NVIDIA device 5: there are 1, counted from 0" in refusal_of(tmp_path, device=5)
    (device / "total").write_text(str(100 * MIB))
    assert "are free on device 0, no more than the floor" in refusal_of(tmp_path)


def test_memory_that_does_not_come_back_is_not_proven(device: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "_BACK_SECONDS", 0.2)
    figures = {"held_bytes": 4096.0 * MIB, "free_bytes": 4096.0 * MIB}
    assert gpu._free_again(0, TOTAL, figures)["device_free_bytes"] == TOTAL
    (device / "1").write_text(str(3000 * MIB))  # process 1 lives for ever
    with pytest.raises(ChaosMMError, match="were to be again"):
        gpu._free_again(0, TOTAL, figures)


def test_without_a_device_it_is_refused_by_name_before_anything_begins(tmp_path: Path):
    if nvml.absence() == "":
        pytest.skip("there is an NVIDIA device here")
    book, _, _ = opened(gpu_memory_stress, tmp_path)
    with pytest.raises(NotInjectable, match="^gpu_memory_stress: no NVIDIA device: "):
        book.put("a", body(gpu_memory_stress))


def test_every_name_that_is_asked_of_nvml_is_there():
    real = importlib.import_module("pynvml")
    assert FAKES not in Path(str(real.__file__)).parents
    sys.path.insert(0, str(FAKES))
    try:
        spec = importlib.util.spec_from_file_location("fake_pynvml", FAKES / "pynvml.py")
        assert spec is not None and spec.loader is not None
        fake = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fake)
    finally:
        sys.path.remove(str(FAKES))
    names = [name for name in vars(fake) if name.lower().startswith("nvml")]
    assert len(names) >= 11 and [name for name in names if not hasattr(real, name)] == []


def test_a_share_beyond_everything_is_refused():
    with pytest.raises(InvalidParams, match=r"share=1.5 is not allowed; it must be a number in \[0, 1\]"):
        gpu_memory_stress.bind({"share": 1.5})
