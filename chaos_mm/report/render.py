"""Writes the pages and summaries; each file whole or not at all, so that a reader never sees half of one."""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos_mm.report import folder as folders
from chaos_mm.report import index_page, run_page
from chaos_mm.report.html import rendered
from chaos_mm.report.junit import junit
from chaos_mm.report.markdown import markdown
from chaos_mm.report.summary import summary

__all__ = ["all", "run"]

_ALONE_SECONDS, _STEP_SECONDS = 10.0, 0.02


def run(folder: Path) -> Path:
    """Writes ``index.html`` of one run's folder, whatever state it is in, and returns its path. Raises OSError."""
    page = folder / "index.html"
    _write(page, rendered("run.html", run_page.page(folders.read(folder))).encode("utf-8", "replace"))
    return page


def all(reports: Path) -> dict[str, Any]:
    """Writes ``index.html``, ``summary.json``, ``summary.md`` and ``junit.xml`` there; returns the summary.

    Runs that are still going on count as what their folder says now. Of several that render the same folder at once
    each reads after the one before has written, so the last one's pages show all runs. Raises OSError.
    """
    with _alone(reports):
        return _all(reports)


def _all(reports: Path) -> dict[str, Any]:
    runs = [folders.read(folder, with_log=False) for folder in folders.runs_in(reports)]
    told = summary(runs)
    _write(reports / "summary.json", (json.dumps(told, indent=2, allow_nan=False) + "\n").encode())
    _write(reports / "summary.md", markdown(runs).encode("utf-8", "replace"))
    _write(reports / "junit.xml", junit(runs))
    _write(reports / "index.html", rendered("index.html", index_page.page(runs)).encode("utf-8", "replace"))
    return told


@contextlib.contextmanager
def _alone(reports: Path) -> Iterator[None]:
    """Nobody else writes these pages meanwhile. A process that holds on for ever, or a disk that knows no locks, costs
    only that: the pages may then lack a run until they are rendered again."""
    handle = os.open(reports, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _ALONE_SECONDS
        while not _locked(handle) and time.monotonic() < until:
            time.sleep(_STEP_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """False when another holds it; true as well where there are no locks, since waiting would bring none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _write(path: Path, data: bytes) -> None:
    """A temporary file beside it takes the name when all is written; two that render at once do not mix."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
