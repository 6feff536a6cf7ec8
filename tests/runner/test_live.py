"""The live view, drawn on a small terminal that we play ourselves."""

import io
import re

import pytest

from chaos_mm.runner.live import Frame, LiveView, fit, spark, view_for
from chaos_mm.runner.planned import Planned
from tests.runner.clocks import Clock
from tests.runner.runs import answer, ended

RUN = {
    "event": "run",
    "title": "Does it read noisy pictures?",
    "phase_seconds": {"fault": 20},
    "objectives": [{"name": "answers", "comparison": "gte", "threshold": 0.5}],
}
SAMPLE = {
    "event": "sample",
    "answers": {"answers": answer(0.74)},
    "hits": {"n": {"matched": 40, "applied": 38}},
}
INJECT = {"event": "inject", "fault": "image_noise", "point": "proxy", "params": {}}


class Screen:
    """As much of a terminal as the view uses: lines, up, clear to the end, clear all."""

    def __init__(self, width: int = 60, height: int = 24) -> None:
        self.width, self.height = width, height
        self.rows: list[str] = [""]
        self.at = 0

    def size(self) -> tuple[int, int]:
        return self.width, self.height

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", text):
            self._put(part)

    def _put(self, part: str) -> None:
        if part.endswith("A") and part.startswith("\x1b"):
            self.at -= int(part[2:-1])
            assert self.at >= 0, "it went above its own lines"
        elif part == "\x1b[J":
            self.rows[self.at :] = [""]
        elif part in ("\x1b[2J", "\x1b[H"):
            self.rows, self.at = [""], 0
        elif part == "\n":
            self.at += 1
            self.rows += [""] * (self.at + 1 - len(self.rows))
        elif part not in ("\r",) and not part.startswith("\x1b"):
            self.rows[self.at] += part
            assert len(self.rows[self.at]) < self.width, f"it wrote into the last column: {self.rows[self.at]!r}"

    @property
    def text(self) -> str:
        return "\n".join(self.rows).rstrip("\n")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def view_on(screen: Screen, clock: Clock, colour: bool = False) -> LiveView:
    return LiveView(screen.write, colour=colour, size=screen.size, clock=clock)


def test_it_shows_the_phase_the_hits_the_objectives_and_what_happened(screen: Screen, clock: Clock) -> None:
    view = view_on(screen, clock)
    view.begin(Planned("image-noise.json"), "1/3")
    assert screen.text == "1/3 image-noise  \n  starting (0:00)"
    view.event(RUN)
    clock.now += 75
    view.event({"event": "phase", "phase": "fault"})
    view.event(INJECT)
    view.event(SAMPLE)
    clock.now += 5
    view.tick()
    assert screen.text.splitlines() == [
        "1/3 image-noise  Does it read noisy pictures?",
        "  fault    █████░░░░░░░░░░░░░░░ 5 of 20 s  (all 1:20)",
        "  hits     38 of 40 matching requests",
        "  ok   answers  0.74 (≥ 0.5)        █",
        "  1:15 fault (20 s)",
        "  1:15 injected image_noise at proxy ()",
    ]


def test_it_draws_in_place_a_few_times_a_second(screen: Screen, clock: Clock) -> None:
    view = view_on(screen, clock)
    view.begin(Planned("a.json"), "1/1")
    view.event(RUN)
    view.tick()
    assert "noisy" not in screen.text
    for _ in range(20):
        clock.now += 0.3
        view.tick()
    assert len(screen.text.splitlines()) == 3
    view.end(ended())
    assert screen.text == ""


@pytest.mark.parametrize(("width", "height"), [(20, 24), (8, 24), (60, 4), (60, 1), (2, 2), (200, 50)])
def test_it_fits_any_terminal(clock: Clock, width: int, height: int) -> None:
    screen = Screen(width, height)
    view = view_on(screen, clock)
    view.begin(Planned("image-noise.json"), "1/1")
    for event in (RUN, {"event": "phase", "phase": "fault"}, *[SAMPLE] * 30, *[INJECT] * 9):
        view.event(event)
        clock.now += 1
        view.tick()
    assert len(screen.text.splitlines()) <= max(1, height - 1)


def test_a_change_of_size_begins_anew_with_the_lines_of_the_runs_that_are_over(screen: Screen, clock: Clock) -> None:
    view = view_on(screen, clock)
    view.begin(Planned("a.json"), "1/2")
    view.end(ended("deviated", 1))
    screen.write("deviated line\n")
    view.begin(Planned("b.json"), "2/2")
    screen.width, screen.height = 300, 10
    view.tick()
    assert screen.text.splitlines()[0].startswith("image-noise  deviated")
    assert screen.text.splitlines()[1].startswith("2/2 b")


def test_colours_are_left_out_when_asked(screen: Screen, clock: Clock) -> None:
    written: list[str] = []
    for colour in (True, False):
        view = LiveView(written.append, colour=colour, size=screen.size, clock=clock)
        view.begin(Planned("a.json"), "1/1")
        written.append("|")
    assert ["\x1b[36m" in text for text in "".join(written).split("|")[:2]] == [True, False]


def test_the_last_lines_of_an_error_stay(screen: Screen, clock: Clock) -> None:
    view = view_on(screen, clock)
    view.begin(Planned("a.json"), "1/1")
    view.output("why it died\x1b[31m")
    view.end(ended("error", -9, found={}))
    assert screen.text == "  | why it died[31m"


def test_an_objective_that_is_not_met_says_so_in_words_too(clock: Clock) -> None:
    frame = Frame("x", clock.now)
    known = [{"name": name, "comparison": "gte", "threshold": 0.5} for name in "ab"]
    frame.take({"event": "run", "objectives": known}, clock.now)
    frame.take({"event": "sample", "answers": {"a": answer(0.1), "b": answer(None)}}, clock.now)
    shown = frame.lines(clock.now, 20, unicode=False)
    assert [(text.split()[0], colour) for text, colour in shown[2:4]] == [("MISS", "red"), ("--", "yellow")]


def test_a_spark_shows_lowest_and_highest_and_gaps() -> None:
    assert spark([0.0, 1.0, None, 0.5], unicode=True) == "▁█ ▅"
    assert spark([0.0, 1.0], unicode=False) == ".#"
    assert spark([1.0, 1.0], unicode=True) == "██"
    assert spark([None], unicode=True) == " "
    assert len(spark([0.0] * 100, unicode=True)) == 20


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 2, "ab"),
        ("画像x", 4, "画像"),
        ("画像", 3, "画"),
        ("a\x1b[31m\nb", 9, "a[31mb"),
        ("e\u0301x", 2, "ex"),
        ("a", 0, ""),
    ],
)
def test_fit_counts_columns_and_drops_what_is_not_printed(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown


class Stream(io.StringIO):
    def __init__(self, terminal: bool, encoding: str = "UTF-8") -> None:
        super().__init__()
        self.terminal, self._named = terminal, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._named

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("stream", "environment", "shown"),
    [
        (Stream(True), {}, ["\x1b[36m", "█"]),
        (Stream(True), {"NO_COLOR": "1"}, ["\x1b[J", "█"]),
        (Stream(True, "ISO-8859-1"), {"NO_COLOR": "1"}, ["\x1b[J", "#"]),
        (Stream(True), {"TERM": "dumb"}, ["1/1 a\n  fault (20 s)\n"]),
        (Stream(False), {}, ["1/1 a\n  fault (20 s)\n"]),
    ],
)
def test_the_view_suits_the_stream(stream: Stream, environment: dict[str, str], shown: list[str]) -> None:
    view = view_for(stream, environment)
    view.begin(Planned("a.json"), "1/1")
    for event in (RUN, {"event": "phase", "phase": "fault"}, SAMPLE):
        view.event(event)
    if isinstance(view, LiveView):
        view._draw()
    assert [part for part in shown if part not in stream.getvalue()] == []
    assert ("\x1b[3" in stream.getvalue()) == ("\x1b[36m" in shown)
    assert ("\x1b" in stream.getvalue()) == isinstance(view, LiveView)
