"""An engine's first process: it makes the board, starts the worker, and serves the control API."""

import json
import subprocess
import sys

from chaos_mm.agent.control import make_board, start_agent
from tests.agent.control_process import Remote
from tests.agent.declared import FAULTS


def main() -> None:
    board = make_board()
    command = [sys.executable, "-m", "tests.agent.worker_process", "worker", sys.argv[1]]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    point = start_agent(Remote(), board, faults=FAULTS)
    print(json.dumps({"url": point.url if point else "", "board": str(board.path)}), flush=True)
    for _ in sys.stdin:
        return


if __name__ == "__main__":
    main()
