"""A run that is to come, and one that is over."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_mm.report.words import EXIT_CODES

__all__ = ["Ended", "Planned"]


@dataclass(frozen=True)
class Planned:
    """One ``chaos run``: its source, its options as on a command line, and the word it is expected to end with ("":
    what its control expects, else passed). ``foreign``: it is not judged by us."""

    source: str
    options: tuple[str, ...] = ()
    expect: str = ""
    foreign: bool = False

    @property
    def name(self) -> str:
        """The file's stem."""
        last = self.source.rstrip("/").rsplit("/", 1)[-1]
        return last.rsplit(".", 1)[0] or last


@dataclass(frozen=True)
class Ended:
    """One that is over. ``status`` is its exit status as the kernel told it (negative: the signal that killed it);
    ``word`` its verdict, "error" where it left none, "" for a foreign one. ``notes``: what the runner did about it."""

    planned: Planned
    folder: Path
    status: int
    word: str
    verdict: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """The word this run was to end with."""
        return self.planned.expect or str(self.verdict.get("expect") or "") or "passed"

    @property
    def as_expected(self) -> bool:
        """Whether it did. Where it was to pass, a dry run will do, and a foreign one that exits 0."""
        passed = self.status == 0 if self.word == "" else self.word in ("passed", "dry")
        return passed if self.expected == "passed" else self.word == self.expected

    @property
    def exit_code(self) -> int:
        """What it stands for among the exit statuses of several runs."""
        if self.word == "error" or self.status < 0:
            return EXIT_CODES["error"]
        return self.status

    @property
    def said(self) -> str:
        """Its word for a person."""
        if self.word:
            return self.word
        return f"exit {self.status}" if self.status >= 0 else f"killed by {signal.Signals(-self.status).name}"
