"""Phase marks: by the load's clock, one line a run."""

import pytest

from chaos_mm.core.errors import BadRequest, NotFound
from chaos_mm.load.marks import MAX_MARKS, MAX_RUNS, Marks, Span
from tests.load.virtual import Clock


@pytest.fixture
def marks(clock: Clock) -> Marks:
    return Marks(clock)


def test_phases_follow_each_other(marks: Marks, clock: Clock) -> None:
    assert marks.current() == ("", "")
    for phase in ("baseline", "fault", "recovery", "end"):
        marks.put("r1", phase)
        clock.now += 10
    assert marks.spans("r1") == [
        Span("baseline", 1000, 1010),
        Span("fault", 1010, 1020),
        Span("recovery", 1020, 1030),
        Span("end", 1030, None),
    ]
    assert [marks.phase_at("r1", at) for at in (999, 1000, 1010, 1019.9, 5000)] == [
        "",
        "baseline",
        "fault",
        "fault",
        "end",
    ]
    assert (marks.current(), marks.latest()) == (("", ""), "r1")


def test_the_same_phase_again_changes_nothing(marks: Marks, clock: Clock) -> None:
    assert marks.put("r1", "baseline") == 1000
    clock.now += 5
    assert marks.put("r1", "baseline") == 1000
    assert marks.spans("r1") == [Span("baseline", 1000, None)]


def test_a_second_run_does_not_disturb_the_first(marks: Marks, clock: Clock) -> None:
    marks.put("r1", "baseline")
    clock.now += 5
    marks.put("r2", "baseline")
    clock.now += 5
    assert marks.current() == ("r2", "baseline")
    assert marks.phase_at("r1", 1009) == "baseline"
    assert marks.spans("r1")[0].end is None


def test_bad_marks_are_named(marks: Marks) -> None:
    with pytest.raises(BadRequest, match="phase is 'chaos'; allowed: baseline, fault, recovery, end"):
        marks.put("r1", "chaos")
    with pytest.raises(BadRequest, match="run is '../x'"):
        marks.put("../x", "fault")
    with pytest.raises(NotFound, match="run 'r9' was never marked"):
        marks.spans("r9")
    assert marks.latest() == ""


def test_the_run_that_was_marked_last_is_current_and_kept(marks: Marks) -> None:
    for run in ("r1", "r2"):
        marks.put(run, "baseline")
    marks.put("r1", "fault")
    assert (marks.current(), marks.latest()) == (("r1", "fault"), "r1")
    for n in range(MAX_RUNS - 1):
        marks.put(f"x{n}", "baseline")
    assert marks.spans("r1")  # it was used after r2, so r2 goes first
    with pytest.raises(NotFound):
        marks.spans("r2")


def test_old_runs_are_forgotten(marks: Marks) -> None:
    for n in range(MAX_RUNS + 1):
        marks.put(f"r{n}", "baseline")
    with pytest.raises(NotFound):
        marks.spans("r0")
    assert marks.spans("r1")


def test_marks_of_one_run_are_bounded(marks: Marks) -> None:
    for n in range(MAX_MARKS):
        marks.put("r1", ("baseline", "fault")[n % 2])
    with pytest.raises(BadRequest, match="has 256 marks"):
        marks.put("r1", "recovery")
