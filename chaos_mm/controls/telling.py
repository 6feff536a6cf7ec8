"""What a run leaves behind: its folder and event log, the verdict in the toolkit's journal, the exit status, a line."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos_mm.controls import journal as toolkits
from chaos_mm.controls.arguments import Arguments
from chaos_mm.controls.command_line import CommandLine, make_way
from chaos_mm.controls.ending import Ended, Ending
from chaos_mm.controls.exit_code import ExitStatus, record
from chaos_mm.controls.facts import Reason
from chaos_mm.controls.folder import RunFolder
from chaos_mm.controls.judge import Judged, judge
from chaos_mm.controls.keeping import SCHEMA, keep, render, scalars
from chaos_mm.controls.names import REPORTS_DIR, text_of
from chaos_mm.controls.redact import Scrubber, holds_by_name
from chaos_mm.controls.run import PHASES, Run
from chaos_mm.controls.signals import Signals
from chaos_mm.controls.versions import replay, versions
from chaos_mm.controls.worst import WorstWindows

__all__ = ["Telling"]

logger = logging.getLogger("chaostoolkit")
_LOUD = frozenset({"not_restored", "error"})


class Telling:
    """Of one run. ``journal``: the toolkit's live journal, None until it was handed over. ``refusals``: what forbids to
    begin because nobody could read of it afterwards."""

    def __init__(self, run: Run, command: CommandLine, arguments: Arguments) -> None:
        self._run, self._command, self._arguments = run, command, arguments
        self.journal: dict[str, Any] | None = None
        self.refusals: list[Reason] = []
        self._folder: RunFolder | None = None
        named = {name: value for name, value in run.configuration.items() if holds_by_name(name)}
        self._scrub = Scrubber({"secrets": run.secrets, "configuration": named})
        self._status = ExitStatus(arguments.exit_code, self._scrub.text)
        self._ended: Ended | None = None
        self._told: dict[str, Any] = {}
        self._replay = ""

    def open(self, experiment: Mapping[str, Any], leaving: Callable[[BaseException | None], None]) -> None:
        """Make the folder, make way for the journal, take over the exit status; what cannot be had is a refusal.

        ``leaving``: called when the command ends, with what broke it.
        """
        self._scrub.install()
        self._replay = replay(self._scrub.text)
        self._status.install(leaving)
        reports = Path(text_of(REPORTS_DIR, self._run.configuration))
        name = self._command.stem or str(experiment.get("title", ""))
        try:
            self._folder = RunFolder.make(reports, name, self._run.id, self._scrub)
            self._run.events = self._folder.events
        except OSError as error:
            self._refuse(f"the reports folder {str(reports)!r} cannot be written to: {error.strerror or error}")
        try:
            if self._command.journal_path:
                make_way(self._command.journal_path, self._run.id)
        except OSError as error:
            where = self._command.journal_path
            self._refuse(f"the journal {where!r} cannot be written: {error.strerror or error}")

    def begin(self, worst: WorstWindows) -> None:
        """The first event."""
        run, lengths = self._run, {phase: self._run.configuration.get(f"{phase}_seconds") for phase in PHASES[:-1]}
        run.events.write(
            "run",
            schema=SCHEMA,
            run=run.id,
            experiment=run.experiment,
            title=run.title,
            source=self._command.source,
            pid=os.getpid(),
            replay=self._replay,
            dry=self._command.dry or None,
            expect=self._arguments.expect or None,
            versions=versions(),
            phase_seconds=lengths,
            objectives=[one.to_json() for one in worst.objectives],
            configuration=scalars(run.configuration),
        )

    def activity(self, activity: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
        """An activity has ended."""
        self._run.events.write(
            "rollback" if self._run.unwinding.is_set() else "activity",
            name=activity.get("name"),
            type=activity.get("type"),
            status=entry.get("status"),
            seconds=entry.get("duration"),
            background=bool(activity.get("background")),
            phase=self._run.phase,
        )

    def conclude(
        self,
        ending: Ending,
        journal: dict[str, Any] | None,
        signals: Signals,
        *,
        refused: bool,
        ask: bool,
        crash: BaseException | None,
    ) -> None:
        """Judge, and tell: event log, folder, journal, exit status, one line.

        ``ask``: whether the run got as far as having something to measure and to leave behind.
        """
        journal = {} if journal is None else journal
        told = [] if refused else list(toolkits.reasons(journal, self._run.configuration))
        told += _unexplained(journal, self._run, refused)
        stopped = self._run.stop.is_set() or crash is not None or journal.get("status") == "interrupted"
        self._ended = ending.collect(told, stopped) if ask else ending.without_asking(told, refused=refused)
        self._status.word = self._ended.judged.word
        self._verdict_to_folder(self._ended)
        self._to_journal(journal, self._ended.judged, signals, crash)
        self._journal_to_folder(journal)
        self._line(self._ended.judged)

    def close(self) -> None:
        """The event log is whole."""
        if self._folder is not None:
            self._folder.close()
        self._scrub.uninstall()

    def _refuse(self, reason: str) -> None:
        self.refusals.append(Reason("error", reason))

    def _to_journal(
        self, journal: dict[str, Any], judged: Judged, signals: Signals, crash: BaseException | None
    ) -> None:
        folder = str(self._folder.path) if self._folder is not None else ""
        self._told = journal
        block = {**judged.to_json(), "run": self._run.id, "folder": folder, "expect": self._arguments.expect or None}
        toolkits.tell(journal, judged, block, next(iter(signals.names), ""), self._run.halted_by)
        if crash is not None:
            journal["status"] = "aborted"
        for key, value in journal.items():
            journal[key] = self._scrub.value(value)
        if isinstance(journal.get("experiment"), dict) and "dry" in journal["experiment"]:
            journal["experiment"]["dry"] = self._command.dry or None
        if crash is not None and self._command.journal_path:
            try:
                toolkits.write(Path(self._command.journal_path), journal)
            except OSError as error:
                logger.error(f"chaos_mm: {self._command.journal_path} could not be written: {error}")

    def _verdict_to_folder(self, ended: Ended) -> None:
        folder = self._folder
        if folder is None:
            return
        left = ended.facts.residue
        told = {"measured": ended.residue.get("measured"), "live": left.live, "unproven": list(left.unproven)}
        folder.events.write("residue", **told, reason=ended.residue.get("reason"))
        folder.events.write("verdict", **ended.judged.to_json())
        trouble = keep(ended, folder, source=self._command.source, replay=self._replay)
        if trouble:
            self._judge_again(ended, trouble)
            folder.events.write("verdict", **ended.judged.to_json())
        if (folder.path / "verdict.json").is_file():
            record(str(folder.path))

    def _judge_again(self, ended: Ended, why: str) -> None:
        """Our part went wrong after the verdict stood."""
        facts = ended.facts
        ended.judged = judge(replace(facts, noted=(*facts.noted, Reason("error", why))))
        self._status.word = ended.judged.word

    def _journal_to_folder(self, journal: Mapping[str, Any]) -> None:
        folder = self._folder
        if folder is None:
            return
        trouble = self._keep_journal(folder, journal)
        trouble = f"{trouble} {folder.close()}".strip()
        if trouble:
            logger.error(f"chaos_mm: {trouble}")
        render(folder)

    def _keep_journal(self, folder: RunFolder, journal: Mapping[str, Any]) -> str:
        try:
            folder.keep_journal(journal)
        except OSError as error:
            return f"journal.json was not written: {error.strerror or error}"
        return ""

    def _line(self, judged: Judged) -> None:
        where = f" (report: {_shown(self._folder.path / 'index.html')})" if self._folder is not None else ""
        text = f"chaos_mm {self._run.id}: {judged.word.upper()}: {judged.why}{where}"
        quiet = logging.WARNING if judged.exit_code else logging.INFO  # INFO is green on a terminal
        logger.log(logging.ERROR if judged.word in _LOUD else quiet, text)

    def broke_after(self, error: BaseException) -> None:
        """The toolkit could not write its journal, or its command broke otherwise, after the verdict stood."""
        if self._ended is None or any("crashed" in one.reason for one in self._run.notes):
            return
        self._judge_again(self._ended, f"the toolkit broke after the run: {type(error).__name__}: {error}")
        judged = self._ended.judged
        toolkits.tell(self._told, judged, {**(self._told.get("verdict") or {}), **judged.to_json()}, "", "")
        if self._folder is not None:
            append_event(self._folder.path / "events.jsonl", "verdict", self._scrub.value(self._ended.judged.to_json()))
            keep(self._ended, self._folder, source=self._command.source, replay=self._replay)
            self._keep_journal(self._folder, self._told)
            render(self._folder)
        self._line(self._ended.judged)


def append_event(path: Path, event: str, fields: Mapping[str, Any]) -> None:
    """One more line to an event log that is closed."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({**fields, "at": now, "event": event}, allow_nan=False) + "\n")
    except OSError as error:
        logger.error(f"chaos_mm: {path} could not be written: {error}")


def _shown(path: Path) -> str:
    """As short as it can be typed."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _unexplained(journal: Mapping[str, Any], run: Run, refused: bool) -> list[Reason]:
    """An interruption that nothing of ours asked for: another control, an activity, a safeguard."""
    if refused or journal.get("status") != "interrupted" or run.notes:
        return []
    return [Reason("interrupted", "the toolkit was interrupted by a control or an activity of the file")]
