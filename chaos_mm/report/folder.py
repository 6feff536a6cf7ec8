"""One run's folder, read whatever state it is in: verdict.json, and what the event log can say where that is silent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_mm.report.events import Log, read_log, rebuilt
from chaos_mm.report.files import plain_bytes
from chaos_mm.report.loose import items, mapping, number, parse, text
from chaos_mm.report.parts import PHASES, Hits, Lease, Objective, Phase, Reason, Sample, Window, all_of, unit_of
from chaos_mm.report.words import EXIT_CODES, WORDS

__all__ = ["RunReport", "is_run", "read", "runs_in"]

KEPT_SAMPLE = "sample"  # reports/sample/ is the run kept in git: it is no run of whoever cloned it
_NAME = re.compile(r"(\d{8}T\d{6}Z)-(.*)-[0-9a-f]{6}")
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class RunReport:
    """A run as its folder tells it. ``word`` is always one of the verdict words; ``notes`` say what could not be read.

    ``told`` is verdict.json, completed by the event log; only ``configuration``, ``versions`` and the like are read
    from it as they stand. Times are ISO texts as written, "" when unknown; ``recovery_seconds`` is None without data.
    """

    folder: Path
    word: str
    words: tuple[str, ...]
    reasons: tuple[Reason, ...]
    exit_code: int
    told: Mapping[str, Any]
    log: Log
    notes: tuple[str, ...] = ()
    leases: tuple[Lease, ...] = ()
    phases: tuple[Phase, ...] = ()
    objectives: tuple[Objective, ...] = ()
    samples: tuple[Sample, ...] = ()
    slis: Mapping[str, Mapping[str, Window]] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """A text of verdict.json, "" when there is none."""
        return text(self.told.get(key))

    @property
    def experiment(self) -> str:
        """The experiment's file stem; where nothing tells it, what the folder is called after."""
        named = _NAME.fullmatch(self.folder.name)
        return self.text("experiment") or text(named[2] if named else self.folder.name)

    @property
    def title(self) -> str:
        """The experiment's title, else its name."""
        return self.text("title") or self.experiment

    @property
    def fault(self) -> str:
        """The first lease's fault, "" when nothing was injected."""
        return self.text("fault") or next((lease.fault for lease in self.leases), "")

    @property
    def hits(self) -> Hits:
        """Of all leases together."""
        return Hits.of(self.told.get("hits"))

    @property
    def expect(self) -> str:
        """The word the run was expected to end with, "" when none was named."""
        return self.text("expect")

    @property
    def duration_seconds(self) -> float | None:
        """From arming to the verdict."""
        return number(self.told.get("duration_seconds"))

    @property
    def recovery(self) -> Window | None:
        """The answer of ``recovery_seconds``, or None when it was never asked."""
        told = self.told.get("recovery_seconds")
        return Window.of(told, "s") if isinstance(told, dict) else None


def runs_in(reports: Path) -> list[Path]:
    """The folders of runs below a reports folder, oldest first. Raises OSError when it cannot be listed.

    A link is none, wherever it leads: a ``latest`` would count its run twice, and one to elsewhere would have pages
    written there.
    """
    found = (one for one in reports.iterdir() if one.name != KEPT_SAMPLE and not one.is_symlink() and is_run(one))
    return sorted(found, key=lambda one: one.name)


def is_run(folder: Path) -> bool:
    """Whether this is a run's folder: by its files, or, for one that was killed before it wrote any, by its name."""
    if not folder.is_dir():
        return False
    if _NAME.fullmatch(folder.name) is not None:
        return True
    return any(_is_file(folder / name) for name in ("events.jsonl", "verdict.json"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder of somebody else's, which may not be looked into
        return False


def read(folder: Path, *, with_log: bool = True) -> RunReport:
    """Reads a run's folder; never raises for what is in it.

    Without ``with_log`` the event log is read only when verdict.json is missing or cannot be used, for overviews.
    """
    verdict, problem = _verdict(folder / "verdict.json")
    log = read_log(folder / "events.jsonl") if with_log or problem or "experiment" not in verdict else Log()
    told = {**rebuilt(log), **verdict}
    word, words, reasons = _word(verdict, problem, log)
    notes = log.notes + ((f"verdict.json: {problem}",) if problem else ())
    return RunReport(
        folder=folder,
        word=word,
        words=words,
        reasons=reasons,
        exit_code=_exit_code(verdict, word, problem),
        told=told,
        log=log,
        notes=notes,
        leases=all_of(Lease, told.get("leases")),
        phases=all_of(Phase, told.get("phases")),
        objectives=all_of(Objective, told.get("objectives")),
        samples=all_of(Sample, told.get("samples")),
        slis=_slis(told.get("slis")),
    )


def _verdict(path: Path) -> tuple[Mapping[str, Any], str]:
    """verdict.json, and why it cannot be used as the verdict ("" when it can)."""
    try:
        found = parse(plain_bytes(path, _MOST_BYTES))
    except FileNotFoundError:
        return {}, "the run left no verdict"
    except OSError as error:
        return {}, f"the verdict cannot be read: {error.strerror}"
    except ValueError as error:
        return {}, f"the verdict cannot be read: {error}"
    told = mapping(found)
    word = told.get("verdict")
    return told, "" if word in WORDS else f"the verdict is {text(word, 'missing')[:80]!r}, which is no verdict word"


def _word(verdict: Mapping[str, Any], problem: str, log: Log) -> tuple[str, tuple[str, ...], tuple[Reason, ...]]:
    if problem:
        reasons = (Reason("error", f"{problem}{_last_words(log)}"), *_reasons(verdict, "error"))
        return "error", ("error",), (*reasons, *_reasons(log.first("refused"), "error"))
    word = str(verdict["verdict"])
    words = tuple(dict.fromkeys(word for word in items(verdict.get("words")) if word in WORDS))
    return word, words if word in words else (word, *words), _reasons(verdict, word)


def _reasons(told: Mapping[str, Any], usual: str) -> tuple[Reason, ...]:
    """Under ``reasons``; what is no verdict word becomes the usual one."""
    found = [Reason.of(one) for one in items(told.get("reasons")) if isinstance(one, dict)]
    return tuple(one if one.word in WORDS else Reason(usual, one.reason) for one in found)


def _last_words(log: Log) -> str:
    """How far the log goes, to stand after "the run left no verdict"."""
    if not log.events:
        return "; nothing is written in its event log"
    last = log.events[-1]
    ended = text(log.first("verdict").get("verdict"))
    if ended:
        return f"; its event log ends with the word {ended!r}, but the verdict's own file is what counts"
    return f"; its event log ends {log.end:.1f} s after arming, with the event {text(last.get('event'))[:80]!r}"


def _exit_code(verdict: Mapping[str, Any], word: str, problem: str) -> int:
    told = verdict.get("exit_code")
    usable = isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= 255
    return int(told) if usable and not problem and told is not None else EXIT_CODES[word]


def _slis(told: Any) -> dict[str, dict[str, Window]]:
    """Whole-phase answers, phase by phase, phases in their order."""
    phases = mapping(told)
    return {
        phase: {text(sli): Window.of(answer, unit_of(sli)) for sli, answer in mapping(phases[phase]).items()}
        for phase in PHASES
        if phase in phases
    }
