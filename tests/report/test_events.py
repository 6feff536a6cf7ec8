"""The event log, whole, cut and full of anything."""

import json
from pathlib import Path

import pytest

from chaos_mm.report.events import read_log, rebuilt
from tests.report.samples import HALTED, PASSED
from tests.report.stories import Story, Teller


def log_of(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def lines_of(story: Story) -> list[str]:
    teller = Teller(story)
    teller.tell()
    return teller.lines


def test_a_missing_log_is_said_and_is_empty(tmp_path: Path) -> None:
    log = read_log(tmp_path / "events.jsonl")
    assert log.events == () and "no event log" in log.notes[0] and log.end == 0.0
    assert "cannot be read" in read_log(tmp_path).notes[0]


def test_lines_that_are_no_events_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = b'{"event": "phase", "phase": "fault", "t": 2.5}'
    data = b"\n".join([b"\x00\xff", good, b"[]", b"3", b'{"event": 7}', b"", good, b'{"event": "ver'])
    log = read_log(log_of(tmp_path / "events.jsonl", data))
    assert len(log.events) == 2 and log.end == 2.5
    assert log.notes == (
        "the event log ends in the middle of a line",
        "4 lines of the event log could not be read, the first is line 1",
    )


def test_a_last_line_that_is_whole_counts_without_its_line_end(tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path / "events.jsonl", b'{"event": "stop", "t": 1}'))
    assert [event["event"] for event in log.events] == ["stop"] and log.notes == ()


def test_more_than_the_most_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_mm.report.events._MOST_BYTES", 64)
    log = read_log(log_of(tmp_path / "events.jsonl", b'{"event": "stop", "t": 1}\n' * 10))
    assert len(log.events) == 2 and "longer than" in log.notes[0]


def test_a_whole_log_rebuilds_what_the_verdict_would_have_said(tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path / "events.jsonl", "\n".join(lines_of(HALTED)).encode()))
    told = rebuilt(log)
    assert (told["experiment"], told["title"], told["fault"]) == (HALTED.experiment, HALTED.title, HALTED.fault)
    assert told["hits"] == {"matched": 39, "applied": 39, "errored": 0}
    assert [phase["name"] for phase in told["phases"]] == ["baseline", "fault", "recovery"]
    assert told["leases"][0]["ended_by"] == "release" and told["leases"][0]["released"] is True
    worst = told["objectives"][0]["phases"]["fault"]
    assert worst["met"] is False and worst["windows"] == 4 and worst["value"] < 0.5


def test_the_worst_of_the_whole_windows_is_the_lowest_or_the_highest(tmp_path: Path) -> None:
    def sample(seconds: float, value: float, *, whole: bool = True, measured: bool = True) -> str:
        answer = {"measured": measured, "value": value, "window_seconds": 5.0, "whole": whole, "met": True}
        return json.dumps({"event": "sample", "phase": "fault", "seconds": seconds, "answers": {"a": answer}})

    lines = [
        sample(5, 0.9),
        sample(6, 0.7),
        sample(7, 0.1, whole=False),
        sample(8, 0.0, measured=False),
        sample(9, 0.8),
    ]
    for comparison, value, started in (("gte", 0.7, 1.0), ("lte", 0.9, 0.0)):
        objective = {"name": "a", "sli": "x", "comparison": comparison, "threshold": 0.75}
        head = json.dumps({"event": "run", "objectives": [objective]})
        told = rebuilt(read_log(log_of(tmp_path / "events.jsonl", "\n".join([head, *lines]).encode())))
        worst = told["objectives"][0]["phases"]["fault"]
        assert (worst["value"], worst["started_seconds"], worst["met"]) == (value, started, False)
        assert (worst["windows"], worst["without_data"]) == (4, 1)


def test_without_a_release_the_hits_are_those_last_seen(tmp_path: Path) -> None:
    lines = [line for line in lines_of(PASSED) if '"released"' not in line]
    told = rebuilt(read_log(log_of(tmp_path / "events.jsonl", "\n".join(lines).encode())))
    assert told["leases"][0]["applied"] == 57 and "released" not in told["leases"][0]


@pytest.mark.timeout(60)
def test_a_log_of_nothing_but_lines_is_read_up_to_a_number(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"event":"run"}\n' + b"\n" * (16 << 20))
    found = read_log(tmp_path / "events.jsonl")
    assert len(found.events) == 1 and "the rest was not read" in found.notes[0]
