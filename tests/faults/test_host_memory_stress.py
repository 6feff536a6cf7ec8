"""The machine is left at its floor, by a second library's figures; one process cannot map more, by its own words."""

import resource
import subprocess
from pathlib import Path

import psutil
import pytest

from chaos_mm.core.errors import NotInjectable
from chaos_mm.faults.host_memory_stress import host_memory_stress
from tests.host.book import SLEEPER, body, held, opened, started

MIB = 1 << 20
GREEDY = """
import sys
for line in sys.stdin:
    try:
        block = bytearray(int(line))
        del block
        print("had", flush=True)
    except MemoryError:
        print("none", flush=True)
"""


def available() -> float:
    return psutil.virtual_memory().available / MIB


def holder_rss() -> float:
    """MiB of the child that holds, by a second library."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss / MIB for child in children if "chaos_mm.host.holder" in child.cmdline())


def test_the_machine_is_left_at_its_floor_and_gets_its_memory_back(tmp_path: Path):
    floor = available() - 600
    with held(host_memory_stress, tmp_path, floor_mib=floor, ramp_seconds=0) as lease:
        assert lease.applied == 1
        taken = lease.achieved["held_bytes"].total / MIB
        # Others on the machine take and give up to 400 MiB meanwhile, and what is held follows the floor.
        assert 200 <= taken <= 1000
        assert 100 <= holder_rss() == pytest.approx(taken, abs=400)
        assert available() > floor - 400
    assert lease.undo is not None and lease.undo.proven
    assert lease.undo.figures["peak_held_bytes"] / MIB <= 1000
    assert holder_rss() == 0


def test_a_lower_floor_takes_more(tmp_path: Path):
    taken = []
    for below in (100, 900):
        with held(host_memory_stress, tmp_path, floor_mib=available() - below, ramp_seconds=0) as lease:
            taken.append(lease.achieved["held_bytes"].total)
    assert taken[0] < taken[1]


def test_a_floor_that_is_passed_already_is_refused(tmp_path: Path):
    book, _, _ = opened(host_memory_stress, tmp_path)
    with pytest.raises(NotInjectable, match=r"bytes are available, no more than the floor of \d+: nothing to take"):
        book.put("a", body(host_memory_stress, floor_mib=3e6))


def ask(process: "subprocess.Popen[bytes]", size: int) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{size}\n".encode())
    process.stdin.flush()
    return process.stdout.readline().decode().split()[0]


def test_one_process_cannot_have_more_and_can_again(tmp_path: Path):
    with started(GREEDY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert ask(process, 512 * MIB) == "had"
        before = resource.prlimit(process.pid, resource.RLIMIT_AS)
        with held(host_memory_stress, tmp_path, kind="process", pid=process.pid, headroom_mib=128) as lease:
            assert lease.applied == 1
            assert ask(process, 512 * MIB) == "none"
            assert ask(process, 32 * MIB) == "had"
        assert lease.undo is not None and lease.undo.proven
        assert resource.prlimit(process.pid, resource.RLIMIT_AS) == before
        assert ask(process, 512 * MIB) == "had"
        assert process.stdin is not None
        process.stdin.close()


def test_a_tighter_limit_is_left_alone(tmp_path: Path):
    book, holds, _ = opened(host_memory_stress, tmp_path)
    with started(SLEEPER) as process:
        tight = 300 * MIB, resource.RLIM_INFINITY
        resource.prlimit(process.pid, resource.RLIMIT_AS, tight)
        with pytest.raises(NotInjectable, match=r"may map 314572800 bytes already"):
            book.put("a", body(host_memory_stress, kind="process", pid=process.pid, headroom_mib=4096))
        assert resource.prlimit(process.pid, resource.RLIMIT_AS) == tight
    assert holds.wait(5.0)
