"""One process serves: a file next to the board names it by pid and start time."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from chaos_mm.agent.identity import Identity
from chaos_mm.core.errors import ChaosMMError

__all__ = ["take_lock"]


def take_lock(board: Path) -> Callable[[], None] | None:
    """Become the one that serves the board; what gives that back, or None where a living process is it.

    A lock whose holder has died is taken over. Raises ChaosMMError where the folder does not allow it.
    """
    path, me = board.with_name(board.name + ".serving"), Identity.here()
    for _ in range(3):
        try:
            _make(path, me)
        except FileExistsError:
            if _holder_lives(path):
                return None
            _move_away(path, me)
        except OSError as error:
            raise ChaosMMError(f"lock {path} cannot be made: {error.strerror}") from None
        else:
            return lambda: path.unlink(missing_ok=True)
    return None


def _make(path: Path, me: Identity) -> None:
    """The lock appears whole or not at all."""
    part = path.with_name(f"{path.name}.{me.pid}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump({"pid": me.pid, "start": me.start}, stream)
        os.link(part, path, follow_symlinks=False)
    finally:
        part.unlink(missing_ok=True)


def _holder_lives(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle) as stream:
            found = json.loads(stream.read(200))
        return Identity(int(found["pid"]), int(found["start"])).alive
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError):
        return True  # not a lock of ours: whoever put it there shall take it away


def _move_away(path: Path, me: Identity) -> None:
    """Two that find the same dead holder: the rename succeeds for one, the other finds nothing to move."""
    aside = path.with_name(f"{path.name}.old.{me.pid}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    aside.unlink(missing_ok=True)
