"""What one thread of an engine's process does while another lets a lease go."""

import threading
import time
from typing import Any

from chaos_mm.agent.board import Board
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.fault import Seam
from tests.agent.conftest import TOKEN
from tests.agent.test_runtime import FAULTS, arm


def test_a_lease_that_is_read_while_another_is_let_go_is_not_forgotten(board: Board):
    runtime = Runtime(board, FAULTS, token=TOKEN)
    arm(board, "kv_draw")
    runtime.tick()
    arm(board, "attention_draw", slot=1, serial=2)
    read = threading.Event()

    class Slow(dict[int, Any]):
        """Whoever lists it in the main thread is overtaken by a seam that reads the new lease, where that can be."""

        def values(self) -> Any:
            found = list(super().values())
            if threading.current_thread() is threading.main_thread() and 1 not in self:
                read.wait(0.5)
            return found

    (old,) = runtime.leases(Seam.KV)
    board.withdraw(0)
    del runtime._held[2]
    runtime._seen = 0
    runtime._held = Slow(runtime._held)
    seam = threading.Thread(target=lambda: (runtime.leases(Seam.ATTENTION), read.set()))
    threading.Timer(0.1, seam.start).start()
    runtime._finish(old)
    time.sleep(0.2)
    seam.join(10)
    assert [armed.serial for armed in runtime.leases(Seam.ATTENTION)] == [2]
    runtime.close()
