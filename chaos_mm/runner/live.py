"""A live view of the run under way, redrawn in place on a terminal.

It writes plain lines and the two oldest control sequences (up, clear to the end), keeps no mode of the terminal that
would have to be put back, and never writes into the last column, so that whatever interrupts it leaves a terminal that
works. When the size changes, nobody knows where the old lines went: it clears the screen and begins anew.
"""

import os
import shutil
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import click

from chaos_mm.runner import lines
from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.progress import Progress, Reading
from chaos_mm.runner.view import PlainView, View

__all__ = ["Frame", "LiveView", "fit", "spark", "view_for"]

_DRAW_SECONDS = 0.25
_NOTES = 6
_BAR = 20
_SPARK = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS = "._-=+*%#"
_COLOURS = {True: "green", False: "red", None: "yellow"}
Line = tuple[str, str]


class Frame:
    """What is to be seen of one run; ``began`` and ``since`` (of the phase) on the view's clock."""

    def __init__(self, heading: str, began: float) -> None:
        self.heading, self.began, self.since = heading, began, began
        self.progress = Progress()
        self.notes: list[str] = []

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Follow an event."""
        if event.get("event") == "phase":
            self.since = now
        stamp = _clock(now - self.began)
        self.notes = [*self.notes, *(f"{stamp} {note}" for note in self.progress.take(event))][-_NOTES:]

    def lines(self, now: float, height: int, unicode: bool) -> list[Line]:
        """Its lines with their colours; the oldest notes go first where there is no room, then the objectives."""
        progress = self.progress
        head = [(f"{self.heading}  {progress.title}", ""), (self._phase(now, unicode), "cyan")]
        if progress.matched:
            head.append((f"  hits     {progress.hits} matching requests", ""))
        width = max((len(name) for name in progress.readings), default=0)
        body = [_reading(one, width, unicode) for one in progress.readings.values()]
        room = max(0, height - len(head) - len(body))
        notes = [(f"  {note}", "") for note in self.notes[-room:]] if room else []
        return [*head, *body, *notes][:height]

    def _phase(self, now: float, unicode: bool) -> str:
        total, spent, length = _clock(now - self.began), now - self.since, self.progress.length
        if self.progress.phase in ("", "end"):
            return f"  {'judging' if self.progress.phase else 'starting'} ({total})"
        if not length:
            return f"  {self.progress.phase.ljust(8)} {spent:.0f} s  (all {total})"
        share = min(1.0, spent / length)
        done, left = ("█", "░") if unicode else ("#", ".")
        bar = done * round(share * _BAR) + left * (_BAR - round(share * _BAR))
        return f"  {self.progress.phase.ljust(8)} {bar} {spent:.0f} of {length:g} s  (all {total})"


class LiveView(View):
    """Draws a Frame about four times a second; of a run that ended in an error its own last lines stay to be read."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        colour: bool = True,
        unicode: bool = True,
        size: Callable[[], tuple[int, int]] = shutil.get_terminal_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._colour, self._unicode, self._size, self._clock = write, colour, unicode, size, clock
        self._frame: Frame | None = None
        self._errors = PlainView(lambda text: write(text + "\n"))
        self._over: list[str] = []
        self._drawn, self._drawn_at, self._drawn_size = 0, float("-inf"), size()

    def begin(self, planned: Planned, place: str) -> None:
        self._frame = Frame(f"{place} {planned.name}", self._clock())
        self._errors = PlainView(lambda text: self._write(text + "\n"))
        self._draw()

    def output(self, line: str) -> None:
        self._errors.output(fit(line, 400))

    def event(self, event: Mapping[str, Any]) -> None:
        if self._frame is not None:
            self._frame.take(event, self._clock())

    def tick(self) -> None:
        if self._clock() - self._drawn_at >= _DRAW_SECONDS or self._size() != self._drawn_size:
            self._draw()

    def end(self, ended: Ended) -> None:
        self._write(self._away())
        self._frame, self._drawn = None, 0
        self._over.append(lines.line(ended))
        self._errors.end(ended)

    def _draw(self) -> None:
        if self._frame is None:
            return
        away = self._away()
        width, height = self._size()
        now = self._clock()
        shown = self._frame.lines(now, max(1, height - 2), self._unicode)
        self._write(away + "".join(self._styled(fit(text, width - 1), colour) + "\n" for text, colour in shown))
        self._drawn, self._drawn_at, self._drawn_size = len(shown), now, (width, height)

    def _away(self) -> str:
        """What takes the last frame off the screen."""
        if self._drawn and self._size() != self._drawn_size:
            return "\x1b[2J\x1b[H" + "".join(f"{line}\n" for line in self._over)
        return f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else "\r\x1b[J"

    def _styled(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour) if colour and self._colour else text


def view_for(stream: TextIO, environment: Mapping[str, str] = os.environ) -> View:
    """What suits ``stream``: drawn in place on a terminal (without colours where NO_COLOR is set, without blocks where
    its encoding has none), else a line when something changes."""
    if not stream.isatty() or environment.get("TERM") == "dumb":
        return PlainView(lambda text: click.echo(text, file=stream))
    blocks = (stream.encoding or "").lower().replace("-", "").startswith("utf")

    def write(text: str) -> None:
        click.echo(text, file=stream, nl=False, color=True)

    return LiveView(write, colour=not environment.get("NO_COLOR"), unicode=blocks)


def fit(text: str, width: int) -> str:
    """Printable, and at most ``width`` columns wide (wide characters take two)."""
    shown: list[str] = []
    used = 0
    for character in text:
        columns = _columns(character)
        if used + columns > width:
            return "".join(shown)
        shown.append(character if columns else "")
        used += columns
    return "".join(shown)


def spark(values: Sequence[float | None], unicode: bool) -> str:
    """The last values as small blocks, lowest to highest of them; a gap where nothing was measured."""
    blocks, shown = (_BLOCKS if unicode else _PLAIN_BLOCKS), values[-_SPARK:]
    known = [value for value in shown if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = (high - low) or 1.0
    top = len(blocks) - 1
    full = high == low
    return "".join(" " if v is None else blocks[top if full else round((v - low) / span * top)] for v in shown)


def _reading(one: Reading, width: int, unicode: bool) -> Line:
    mark = {True: "ok  ", False: "MISS", None: "--  "}[one.met]
    return f"  {mark} {one.name.ljust(width)}  {one.said.ljust(18)}  {spark(one.values, unicode)}", _COLOURS[one.met]


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
