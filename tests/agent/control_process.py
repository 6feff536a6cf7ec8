"""The process that serves the control API of a miniature engine whose steps run in other processes."""

import json
import os
import sys
import time
from pathlib import Path

from chaos_mm.agent.adapter import Adapter
from chaos_mm.agent.board import Board
from chaos_mm.agent.control import start_agent
from chaos_mm.core.fault import Effect, Seam
from tests.agent.declared import FAULTS


class Remote(Adapter):
    """Its workers step all the time, so that a canary of its own is always under way."""

    name, version = "miniature", "1"
    facts = {"backend": "torch"}
    seams = frozenset((Seam.KV, Seam.ATTENTION, Seam.ENGINE_MEMORY, Seam.BLOCK_POOL))
    batch_wide = frozenset((Seam.ATTENTION,))
    fatal = {Effect.RAISES: "restart needed: a step does not survive an exception"}

    def prove(self, seam: Seam) -> str:
        time.sleep(0.1)
        return ""


def main() -> None:
    board = Board.open(Path(os.environ["CHAOS_MM_AGENT_BOARD"]), os.environ["CHAOS_MM_AGENT_NONCE"])
    point = start_agent(Remote(), board, faults=FAULTS)
    print(json.dumps({"url": point.url if point else ""}), flush=True)
    if point is None:
        return
    for _ in sys.stdin:
        return


if __name__ == "__main__":
    main()
