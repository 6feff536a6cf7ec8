"""A whole demo (target, proxy, load, each a process) with a state folder and ports of its own."""

import os
import subprocess
import sys
from pathlib import Path

from chaos_mm.demo.state import DemoState
from tests.ports import free_ports

CHAOS_MM = str(Path(sys.executable).with_name("chaos-mm"))


class OwnDemo:
    """Up until ``close``; ``environment`` is what a process needs to run experiments against it."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder, self.reports = folder, folder / "reports"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_MM_")}
        self.environment = {**kept, "CHAOS_MM_STATE_DIR": str(folder / "state"), "CHAOS_MM_REPORTS": str(self.reports)}
        up = self._run("demo", "--base-port", str(free_ports(6)), "up")
        self.exports = dict(line.removeprefix("export ").split("=", 1) for line in up.splitlines())
        self.environment.update(self.exports)

    def state(self) -> DemoState:
        """What runs, as its supervisor wrote it last."""
        state = DemoState.read(self.folder / "state/demo.json")
        assert state is not None
        return state

    def close(self) -> None:
        """Bring everything down."""
        self._run("demo", "down")

    def _run(self, *arguments: str) -> str:
        argv = [CHAOS_MM, *arguments]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout
