"""Points, gaps, the time under fault and marks, from events."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.report.folder import RunReport, read
from chaos_mm.report.timeline import Mark, Series, Span, series, timeline
from tests.report.samples import DEVIATED, HALTED, INTERRUPTED, NOT_EXERCISED, PASSED


def run_of(folder: Path, events: Sequence[dict[str, Any]], **verdict: Any) -> RunReport:
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    (folder / "verdict.json").write_text(json.dumps({"verdict": "passed", **verdict}))
    return read(folder)


def points_of(folder: Path, values: Sequence[tuple[float, float | None]]) -> Series:
    """One objective with a value at each time; None: not measured."""
    events = [{"event": "run", "objectives": [{"name": "a", "sli": "ok_ratio"}]}]
    for at, value in values:
        answer = {"measured": value is not None, "value": value or 0.0, "whole": True, "met": True}
        events.append({"event": "sample", "t": at, "answers": {"a": answer}})
    run = run_of(folder, events)
    return series(run, run.objectives[0])


def test_a_whole_run_has_its_phases_its_fault_and_its_recovery(told: Callable[..., RunReport]) -> None:
    line = timeline(told(DEVIATED))
    assert [span.name for span in line.phases] == ["baseline", "fault", "recovery"]
    assert line.faults == (Span("image_noise", 20.4, 40.52),)
    assert line.marks == (Mark("recovered", pytest.approx(46.92), "recovered"),)
    assert line.end == pytest.approx(61.2)


def test_halts_and_signals_are_marked_where_they_happened(told: Callable[..., RunReport]) -> None:
    assert timeline(told(HALTED)).marks[0] == Mark("halt", 34.2, "halted: bystanders-unharmed")
    assert Mark("signal", 31.0, "SIGTERM") in timeline(told(INTERRUPTED)).marks


def test_who_never_broke_did_not_recover(told: Callable[..., RunReport]) -> None:
    assert timeline(told(PASSED)).marks == ()


def test_a_fault_without_a_release_lasts_as_long_as_the_log(tmp_path: Path) -> None:
    events = [{"event": "inject", "lease": "x", "t": 2}, {"event": "stop", "t": 9}]
    assert timeline(run_of(tmp_path, events)).faults == (Span("x", 2.0, 9.0),)


def test_the_first_release_of_a_lease_ends_it(tmp_path: Path) -> None:
    released = [{"event": "released", "lease": "x", "t": at} for at in (5, 8)]
    events = [{"event": "inject", "lease": "x", "t": 2}, *released]
    assert timeline(run_of(tmp_path, events)).faults == (Span("x", 2.0, 5.0),)


def test_residue_is_marked(tmp_path: Path) -> None:
    events = [{"event": "residue", "live": 0, "t": 3}, {"event": "residue", "live": 2, "t": 4}]
    assert timeline(run_of(tmp_path, events)).marks == (Mark("halt", 4.0, "residue found"),)


def test_an_empty_run_has_an_empty_timeline(tmp_path: Path) -> None:
    line = timeline(run_of(tmp_path, []))
    assert (line.end, line.phases, line.faults, line.marks) == (0.0, (), (), ())


def test_points_are_the_samples(told: Callable[..., RunReport]) -> None:
    run = told(replace(PASSED, seconds=(12.0, 12.0, 12.0)))
    found = series(run, run.objectives[0])
    assert len(found.points) == 35 and found.unit == "ratio" and found.gaps == ()
    assert [point.whole for point in found.points[:12]] == [False] * 9 + [True] * 3


def test_the_worst_window_of_each_phase_stands_where_it_ended(told: Callable[..., RunReport]) -> None:
    run = told(DEVIATED)
    found = series(run, run.objectives[0]).worst
    assert [point.met for point in found] == [True, False, True]
    answers = [run.objectives[0].phases[phase.name] for phase in run.phases]
    assert [point.value for point in found] == [answer.value for answer in answers]
    ends = [phase.began + (answer.started_seconds or 0) + 10 for phase, answer in zip(run.phases, answers, strict=True)]
    assert [point.at for point in found] == pytest.approx(ends)


def test_what_was_not_measured_is_a_gap_between_its_neighbours(tmp_path: Path) -> None:
    found = points_of(tmp_path, [(1, 0.9), (2, None), (3, None), (4, 0.8), (5, 0.8)])
    assert [point.value for point in found.points] == [0.9, None, None, 0.8, 0.8]
    assert found.gaps == (Span("no data", 1.0, 4.0),)


def test_what_was_not_written_is_a_gap(tmp_path: Path) -> None:
    assert points_of(tmp_path, [(1, 0.9), (2, 0.9), (9, 0.8), (10, 0.8)]).gaps == (Span("no data", 2.0, 9.0),)
    assert points_of(tmp_path, [(10.0 * at, 0.9) for at in range(6)]).gaps == ()  # a slow sampler is no gap


def test_gaps_at_both_ends_and_all_along(tmp_path: Path) -> None:
    ends = points_of(tmp_path, [(1, None), (2, 0.9), (3, 0.9), (4, None)])
    assert ends.gaps == (Span("no data", 1.0, 2.0), Span("no data", 3.0, 4.0))
    assert points_of(tmp_path, [(1, None), (2, None)]).gaps == (Span("no data", 1.0, 2.0),)
    assert points_of(tmp_path, []).gaps == ()


def test_the_blind_seconds_of_a_run_are_a_gap(told: Callable[..., RunReport]) -> None:
    run = told(NOT_EXERCISED)
    (gap,) = series(run, run.objectives[0]).gaps
    assert gap.start < 24.5 and gap.end > 27.4
