"""The event log: never in the way, and on disk whatever becomes of the process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.eventlog import EventLog
from tests.edge.chaos import REPOSITORY, wait_for


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_one_strict_object_a_line_in_order(tmp_path: Path) -> None:
    ticks = iter([100.0, 100.25, 101.5])
    log = EventLog(tmp_path / "events.jsonl", clock=lambda: next(ticks))
    log.write("run", schema=1, sigma=float("nan"), place={"a": (1, 2)})
    log.write("phase", phase="baseline", at="never overwritten")
    assert log.close() == ""
    first, second = lines_of(log.path)
    assert first["event"] == "run" and first["sigma"] == "nan" and first["place"] == {"a": [1, 2]}
    assert (first["t"], second["t"], second["phase"]) == (0.25, 1.5, "baseline")
    assert second["at"].endswith("Z") and len(second["at"]) == len("2026-01-02T03:04:05.678Z")


def test_what_is_written_is_a_copy(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    hits = {"image_noise": {"applied": 1}}
    log.write("sample", hits=hits)
    hits["image_noise"]["applied"] = 2
    log.close()
    assert lines_of(log.path)[0]["hits"] == {"image_noise": {"applied": 1}}


def test_the_file_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(FileExistsError):
        EventLog(tmp_path / "events.jsonl")
    with pytest.raises(FileNotFoundError):
        EventLog(tmp_path / "nowhere" / "events.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        EventLog(tmp_path / "link")


def test_a_stalled_disk_holds_nobody_up_and_what_is_dropped_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, entered = threading.Event(), threading.Event()
    real = os.fsync

    def stall(handle: int) -> None:
        entered.set()
        free.wait(30)
        real(handle)

    monkeypatch.setattr("chaos_mm.controls.eventlog.os.fsync", stall)
    log = EventLog(tmp_path / "events.jsonl", most_waiting=10)
    log.write("first")
    assert entered.wait(10)
    began = time.monotonic()
    for number in range(500):
        log.write("sample", number=number)
    assert time.monotonic() - began < 1.0
    assert "the disk did not take the last" in log.close(timeout=0.01)
    free.set()
    assert log.close() == ""
    found = lines_of(log.path)
    kept = [line["number"] for line in found if line["event"] == "sample"]
    dropped = [line["count"] for line in found if line["event"] == "dropped"]
    assert kept == list(range(10))
    assert dropped == [490]


def test_a_full_disk_is_told_at_the_end_and_tears_no_later_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.write, []

    def full(handle: int, data: Any) -> int:
        calls.append(bytes(data))
        if len(calls) == 2:
            return real(handle, bytes(data)[:7])
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr("chaos_mm.controls.eventlog.os.write", full)
    log = EventLog(tmp_path / "events.jsonl")
    for number, event in enumerate(("one", "two", "three"), start=1):
        log.write(event)
        wait_for(lambda number=number: len(calls) >= number)
        time.sleep(0.05)
    assert log.close() == f"{log.path}: 1 events were not written: No space left on device"
    good = []
    for line in log.path.read_text().splitlines():
        try:
            good.append(json.loads(line)["event"])
        except ValueError:
            continue
    assert good == ["one", "three"]


def test_what_cannot_be_read_leaves_its_name(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    itself: dict[str, Any] = {}
    itself["self"] = itself
    log.write("odd", itself=itself)
    log.close()
    log.write("late", ignored=True)
    assert [(line["event"], line["unreadable"]) for line in lines_of(log.path)] == [("odd", "RecursionError")]


def test_a_scrubber_that_lets_odd_things_through_still_leaves_strict_json(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", scrub=lambda value: value)
    log.write("odd", value=float("inf"), other=object())
    log.close()
    assert lines_of(log.path)[0]["unreadable"] in ("TypeError", "ValueError")


def test_many_threads(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    threads = [
        threading.Thread(target=lambda who=who: [log.write("sample", who=who, n=n) for n in range(200)])
        for who in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.close(10) == ""
    found = lines_of(log.path)
    assert len(found) == 1600
    for who in range(8):
        assert [line["n"] for line in found if line["who"] == who] == list(range(200))


_WRITES_AND_HANGS = """
import sys, time
from pathlib import Path
from chaos_mm.controls.eventlog import EventLog
log = EventLog(Path(sys.argv[1]))
n = 0
while True:
    log.write("sample", n=n)
    n += 1
    time.sleep(0.001)
"""


def test_it_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    process = subprocess.Popen([sys.executable, "-c", _WRITES_AND_HANGS, str(path)], cwd=REPOSITORY)
    try:
        wait_for(lambda: path.exists() and path.stat().st_size > 5_000)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    whole = path.read_bytes().rpartition(b"\n")[0].decode().splitlines()
    assert [json.loads(line)["n"] for line in whole] == list(range(len(whole)))
    assert len(whole) > 50


def test_writing_in_a_signal_handler(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    before = signal.signal(signal.SIGALRM, lambda *_: log.write("signal", name="SIGALRM"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for n in range(3000):
            log.write("sample", n=n)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert log.close(10) == ""
    found = lines_of(log.path)
    assert [line["n"] for line in found if line["event"] == "sample"] == list(range(3000))
    assert any(line["event"] == "signal" for line in found)
