"""Where a user's points and tools keep what they share: one private folder."""

import os
from pathlib import Path

from chaos_mm.core.undo import check_private


def state_dir() -> Path:
    """The folder, made 0700 when missing: ``CHAOS_MM_STATE_DIR``, else ``$XDG_STATE_HOME/chaos-mm``, else
    ``~/.local/state/chaos-mm``.

    Raises ChaosMMError when it is a link, another user's, or open to others.
    """
    folder = _named() or _default()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)
    return folder


def _named() -> Path | None:
    name = os.environ.get("CHAOS_MM_STATE_DIR")
    return Path(name).absolute() if name else None


def _default() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "chaos-mm"
