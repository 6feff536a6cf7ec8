"""memory_ceiling in a real process: the headroom is there, beyond it the allocator says no, and afterwards yes."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Effect, Point
from chaos_mm.core.rng import Rng
from chaos_mm.faults.memory_ceiling import memory_ceiling
from tests.contract.engine_samples_embedding import OwnMemory

ROOT = Path(__file__).parents[2]
# A process of its own: a limit on the tests' own address space would reach the other tests.
PROGRAM = """
import resource, torch
torch.set_num_threads(1)
from chaos_mm.core.rng import Rng
from chaos_mm.faults.memory_ceiling import memory_ceiling
from tests.contract.engine_samples_embedding import OwnMemory

def fits(mib):
    try:
        return torch.empty(mib << 20, dtype=torch.uint8).numel() == mib << 20
    except RuntimeError as error:
        assert "allocate memory" in str(error), error
        return False

before = resource.getrlimit(resource.RLIMIT_AS)
print(fits(900))
hold = memory_ceiling(OwnMemory(), Rng.derive(3, "l", "0", "memory_ceiling"), headroom_mib=300.0)
figures = next(hold)
print(figures["ceiling_bytes"] == resource.getrlimit(resource.RLIMIT_AS)[0], figures["used_bytes"] > 10 << 20)
print(fits(100), fits(900), fits(100))
hold.close()
print(fits(900), resource.getrlimit(resource.RLIMIT_AS) == before)
"""


def test_a_real_process_meets_its_ceiling_and_is_free_again():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:4] == ["True", "True True", "True False True", "True True"]


def test_the_ceiling_is_lifted_where_setting_it_failed_halfway():
    class Halfway(OwnMemory):
        lifted = 0

        def set_ceiling(self, headroom_bytes: int) -> int:
            raise ChaosMMError("the second worker did not answer")

        def lift_ceiling(self) -> None:
            self.lifted += 1

    memory = Halfway()
    with pytest.raises(ChaosMMError, match="second worker"):
        next(memory_ceiling(memory, Rng.derive(3, "l", "0", "memory_ceiling")))
    assert memory.lifted == 1


def test_it_stands_at_the_agent_and_says_that_an_error_leaves():
    assert memory_ceiling.points == (Point.AGENT,) and memory_ceiling.effect is Effect.RAISES
