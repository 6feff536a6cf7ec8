"""Starts the project's own commands as real processes for the tests, and ends them again by pid."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHAOS_MM = str(Path(sys.executable).with_name("chaos-mm"))


@dataclass
class Running:
    """A started command; ``ready`` is the line it announced itself with."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    log: Path
    argv: tuple[str, ...] = field(repr=False)

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    @property
    def control_url(self) -> str:
        return str(self.ready["control_url"])

    def kill(self) -> None:
        """As ``kill -9``."""
        self.process.kill()
        self.process.wait(10)
        self._close()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that is not enough."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(*arguments: str, state: Path, seconds: float = 120.0, env: Mapping[str, str] | None = None) -> Running:
    """Run ``chaos-mm ARGUMENTS`` with a state folder of its own and wait for its ready line.

    Fails with the end of its log when it ends, or says nothing within ``seconds``.
    """
    log = state / f"{arguments[0]}-{len(list(state.glob('*.log')))}.log"
    full = {**os.environ, "CHAOS_MM_STATE_DIR": str(state), "OMP_NUM_THREADS": "1", **(env or {})}
    argv = (CHAOS_MM, *arguments)
    with log.open("w") as stream:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stream, text=True, env=full)
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    assert process.stdout is not None
    line = process.stdout.readline()
    timer.cancel()
    if not line:
        process.wait(10)
        raise AssertionError(f"{' '.join(argv)} did not start:\n{log.read_text()[-3000:]}")
    return Running(process, json.loads(line), log, argv)
