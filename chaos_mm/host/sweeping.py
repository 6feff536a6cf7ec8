"""The undo log of this host, and those of dead hosts swept: several hosts of one user never undo each other's holds.

Each host takes the first folder whose lock nobody holds, for as long as it lives; a lock goes with its process.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.undo import UndoLog, sweep

__all__ = ["own_log"]

logger = logging.getLogger("chaos_mm.undo")
_MOST = 64
Undoers = Mapping[str, Callable[[Mapping[str, Any]], None]]


def own_log(state: Path, undoers: Undoers) -> UndoLog:
    """Sweep every folder that no living host holds, and keep the first. Raises ChaosMMError when all are held."""
    own: UndoLog | None = None
    for number in range(_MOST):
        folder = state / f"host-undo-{number}"
        if own is not None and not folder.exists():
            continue
        log = UndoLog(folder)
        lock = _locked(folder)
        if lock is None:
            continue
        _sweep(log, undoers)
        if own is None:
            own = log  # its lock stays open as long as this process
        else:
            os.close(lock)
    if own is None:
        raise ChaosMMError(f"{_MOST} hosts of this user live already; end one of them first")
    return own


def _locked(folder: Path) -> int | None:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _sweep(log: UndoLog, undoers: Undoers) -> None:
    swept = sweep(log, undoers)
    if swept.undone:
        logger.warning("%d changes of a host that was killed were undone", len(swept.undone))
