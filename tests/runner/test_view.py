"""Views without a terminal."""

from chaos_mm.runner.planned import Planned
from chaos_mm.runner.view import PassingOn, PlainView
from tests.runner.runs import answer, ended


def test_plain_lines_come_on_change_only() -> None:
    shown: list[str] = []
    view = PlainView(shown.append)
    view.begin(Planned("image-noise.json"), "1/2")
    view.output("[INFO] chatter")
    sample = {"event": "sample", "answers": {"a": answer(0.9)}}
    for event in ({"event": "phase", "phase": "baseline"}, *[sample] * 5, {"event": "phase", "phase": "end"}):
        view.event(event)
        view.tick()
    view.end(ended())
    assert shown == ["1/2 image-noise", "  baseline"]


def test_an_error_shows_the_last_lines_of_its_run_only() -> None:
    shown: list[str] = []
    view = PlainView(shown.append)
    view.begin(Planned("a.json"), "1/2")
    view.output("of the first")
    view.begin(Planned("b.json"), "2/2")
    for number in range(50):
        view.output(f"line {number}")
    view.end(ended("error", 4, found={}))
    assert shown[2:] == [f"  | line {number}" for number in range(30, 50)]


def test_passing_on_hands_over_every_line() -> None:
    said: list[str] = []
    view = PassingOn(said.append)
    view.begin(Planned("a.json"), "1/2")
    view.output("x")
    assert said == ["\n1/2 chaos run a.json", "  x"]
