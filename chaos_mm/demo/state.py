"""``demo.json``: what runs, where and since when. Written by the supervisor alone, read by everybody else."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DemoState", "ServiceState", "is_running", "process_started"]


@dataclass
class ServiceState:
    """One process of the demo. ``restarts`` counts the times it came back after it had died unasked."""

    name: str
    url: str
    state: str = "starting"
    pid: int = 0
    restarts: int = 0
    last_exit: str = ""
    down_seconds: float = 0.0


@dataclass
class DemoState:
    """The whole demo. ``pid`` and ``pid_started`` together name the supervisor, since pids come round again."""

    state: str
    pid: int
    pid_started: str
    base_port: int
    started_at: float
    exports: dict[str, str]
    services: list[ServiceState] = field(default_factory=list)
    reason: str = ""

    @property
    def supervised(self) -> bool:
        """Whether the supervisor that wrote this still runs."""
        return is_running(self.pid, self.pid_started)

    def write(self, path: Path) -> None:
        """Replace the file in one step, readable by this user only."""
        handle, name = tempfile.mkstemp(prefix=".demo-", dir=path.parent)  # made 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=1)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    @classmethod
    def read(cls, path: Path) -> "DemoState | None":
        """What the file says; None when there is none, or it is not one of this version's."""
        try:
            held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**held, "services": [ServiceState(**service) for service in held["services"]]})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def process_started(pid: int) -> str:
    """A mark that a pid keeps for its life and its successor does not have; empty when no such process runs.

    Boot id and start time in clock ticks, from /proc; where there is no /proc, the bare fact that it runs.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The name in brackets may itself hold brackets and blanks: count the fields after the last one.
        fields = text.rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return "" if fields[0] in ("Z", "X") else f"{boot}:{fields[19]}"
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() or not _exists(pid) else "running"


def is_running(pid: int, started: str) -> bool:
    """Whether the very process that had this mark still runs."""
    return pid > 0 and started != "" and process_started(pid) == started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
