"""What follows a list of runs. This one shows nothing; each method is called from the thread that runs the list."""

from collections.abc import Callable, Mapping
from typing import Any

from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.progress import Progress

__all__ = ["PassingOn", "PlainView", "View"]

_KEPT_LINES = 20


class View:
    """Base of the views."""

    def begin(self, planned: Planned, place: str) -> None:
        """A run is about to start; ``place`` is as "2/4"."""

    def output(self, line: str) -> None:
        """A line that the run wrote."""

    def event(self, event: Mapping[str, Any]) -> None:
        """An event of its events.jsonl."""

    def tick(self) -> None:
        """Called about ten times a second."""

    def end(self, ended: Ended) -> None:
        """The run is over; its line is shown after this."""


class PassingOn(View):
    """What the runs say goes to ``say`` as it is, after a heading."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def begin(self, planned: Planned, place: str) -> None:
        self._say(f"\n{place} chaos run {planned.source}")

    def output(self, line: str) -> None:
        self._say(f"  {line}")


class PlainView(View):
    """A line when something changes, for where there is no terminal. Of a run that ended in an error, its own last
    lines as well: they say why."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._progress = Progress()
        self._last: list[str] = []

    def begin(self, planned: Planned, place: str) -> None:
        self._progress, self._last = Progress(), []
        self._show(f"{place} {planned.name}")

    def output(self, line: str) -> None:
        self._last = [*self._last[1 - _KEPT_LINES :], line]

    def event(self, event: Mapping[str, Any]) -> None:
        for note in self._progress.take(event):
            self._show(f"  {note}")

    def end(self, ended: Ended) -> None:
        for line in self._last if ended.word == "error" else ():
            self._show(f"  | {line}")
