"""Which process a number means: a pid is used again, a pid with its start time is not."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Identity"]
_STATE_FIELD, _START_FIELD = 0, 19  # of /proc/PID/stat, counted behind the command's closing bracket


@dataclass(frozen=True)
class Identity:
    """A process: ``pid`` and ``start``, its start in clock ticks since boot (field 22 of /proc/PID/stat)."""

    pid: int
    start: int

    @classmethod
    def here(cls) -> "Identity":
        """This process. Raises OSError where there is no /proc."""
        fields = _fields(os.getpid())
        return cls(os.getpid(), int(fields[_START_FIELD]))

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        try:
            fields = _fields(self.pid)
        except OSError:
            return False
        return int(fields[_START_FIELD]) == self.start and fields[_STATE_FIELD] not in ("Z", "X")


def _fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()
