"""Many experiments in order, each a ``chaos run`` of its own."""

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos_mm.report.words import EXIT_CODES, WORDS
from chaos_mm.runner import leftovers, lines, options
from chaos_mm.runner.child import Child, EventFile
from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.relay import GRACE_SECONDS, Relay
from chaos_mm.runner.view import View

__all__ = ["FOREIGN_FOLDER", "closing", "render", "run_all"]

FOREIGN_FOLDER = "foreign"
_LOOK_SECONDS = 0.1


def run_all(
    planned: Sequence[Planned],
    *,
    reports_dir: Path,
    environment: Mapping[str, str],
    show: Callable[[str], None],
    view: View | None = None,
    command: Sequence[str] = ("--no-version-check",),
    relay: Relay | None = None,
) -> list[Ended]:
    """Run each to its end; a line of each to ``show``. ``command``: options before ``run``.

    A signal ends the run under way, which releases its faults, and the list: then fewer have ended than were planned.
    Raises OSError when no folder can be made under ``reports_dir``.
    """
    ended: list[Ended] = []
    reports = reports_dir.absolute()
    with relay or Relay() as signals:
        for number, one in enumerate(planned, start=1):
            if signals.stopping:
                break
            if view is not None:
                view.begin(one, f"{number}/{len(planned)}")
            ended.append(_run_one(one, _folder(reports, one), environment, command, signals, view or _Shown(show)))
            _end(ended[-1], show, view)
    return ended


def closing(ended: Sequence[Ended], reports_dir: Path) -> str:
    """Where the report over all folders is, "" when there is nothing to report. Verdicts and exit status stand whatever
    becomes of the pages, so what breaks there is only said."""
    try:
        page = render(ended, reports_dir)
    except Exception as error:
        return f"The report could not be written: {type(error).__name__}: {error}"
    return f"Report: {page}" if page is not None else ""


def render(ended: Sequence[Ended], reports_dir: Path) -> Path | None:
    """The report over all folders, once more for those that died without one; its page, None when there is nothing to
    report. Raises OSError, and what a broken renderer raises."""
    judged = [one for one in ended if one.word]
    if not judged:
        return None
    from chaos_mm.report import render as pages

    for one in judged:
        if not (one.folder / "index.html").exists():
            pages.run(one.folder)
    pages.all(reports_dir.absolute())
    return reports_dir / "index.html"


class _Shown(View):
    """Without a view: what a run says, indented."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def output(self, line: str) -> None:
        self._show(f"  {line}")


def _run_one(
    one: Planned, folder: Path, environment: Mapping[str, str], command: Sequence[str], relay: Relay, view: View
) -> Ended:
    expected = {"CHAOS_MM_EXPECT": one.expect} if one.expect else {}
    ours = {"CHAOS_MM_RUNNER": str(os.getpid()), "CHAOS_MM_RUN_FOLDER": str(folder), **expected}
    child = Child([*options.toolkit(), *command, *_run_words(one, folder)], {**environment, **ours})
    relay.watch(child)
    try:
        status = _follow(child, folder / "events.jsonl", relay, view)
    except BaseException:  # a pipe that nobody reads any more, say: the run must not go on without us
        child.end(GRACE_SECONDS)
        raise
    finally:
        relay.watch(None)
    return _ended(one, folder, status)


def _run_words(one: Planned, folder: Path) -> list[str]:
    journal = (
        [] if any(w.startswith("--journal-path") for w in one.options) else [f"--journal-path={folder}/journal.json"]
    )
    return ["run", *journal, *one.options, "--", one.source]


def _follow(child: Child, events: Path, relay: Relay, view: View) -> int:
    """Hand on what it says until it is over; its exit status."""
    file, status = EventFile(events), None
    while status is None:
        status = child.wait(_LOOK_SECONDS)
        if status is None and relay.overdue:
            child.kill()
        for event in file.read():
            view.event(event)
        for line in child.lines():
            view.output(line)
        view.tick()
    return status


def _ended(one: Planned, folder: Path, status: int) -> Ended:
    events = EventFile(folder / "events.jsonl").read()
    verdict = _verdict(folder)
    if not events and not verdict and _is_foreign(one, status):
        return Ended(one, folder, status, "")
    word = str(verdict.get("verdict", ""))
    if word not in WORDS:
        return Ended(one, folder, status, "error", verdict, tuple(_release(events)))
    if EXIT_CODES[word] == 0 and status != 0:
        said = f"its word is {word}, but its exit status {status}"
        return Ended(one, folder, status, "error", verdict, (said,))
    return Ended(one, folder, status, word, verdict)


def _is_foreign(one: Planned, status: int) -> bool:
    """What had to be fetched is known by what it left, and by the status with which our plugin refuses its own."""
    fetched = one.source.startswith(("http://", "https://"))
    return one.foreign or (fetched and 0 <= status < EXIT_CODES["error"])


def _release(events: Sequence[Mapping[str, Any]]) -> list[str]:
    first = events[0] if events else {}
    run, configuration = first.get("run"), first.get("configuration")
    said = ["the run left no verdict"]
    if isinstance(run, str) and run:
        said += leftovers.release(run, configuration if isinstance(configuration, Mapping) else {})
    return said


def _verdict(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _folder(reports: Path, one: Planned) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", one.name.lower()).strip("-")[:60].strip("-") or "experiment"
    beside = reports / FOREIGN_FOLDER if one.foreign else reports
    made = beside / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{slug}-{secrets.token_hex(3)}"
    made.mkdir(parents=True)
    return made


def _end(ended: Ended, show: Callable[[str], None], view: View | None) -> None:
    if view is not None:
        view.end(ended)
    show(lines.line(ended))
    for note in ended.notes:
        show(f"  {note}")
