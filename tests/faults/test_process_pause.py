"""A paused process does nothing, by its own counter, and goes on where it was."""

import time
from pathlib import Path

import pytest

from chaos_mm.core.errors import NotInjectable
from chaos_mm.faults.process_pause import process_pause
from tests.host.book import COUNTER, LISTENER, SLEEPER, body, held, opened, started, state, wait_for
from tests.ports import free_ports


def test_its_counter_stands_still_and_goes_on(tmp_path: Path):
    count = tmp_path / "count"
    with started(COUNTER, count) as process:
        wait_for(lambda: count.exists() and count.read_text(), "it counts")
        with held(process_pause, tmp_path, pid=process.pid) as lease:
            assert state(process.pid) == "T"
            stopped = count.read_text()
            time.sleep(0.3)
            assert count.read_text() == stopped
        assert lease.undo is not None and lease.undo.proven and lease.undo.figures["resumed_processes"] == 1.0
        wait_for(lambda: count.read_text().isdigit() and int(count.read_text()) > int(stopped or 0) + 5, "it goes on")


def test_it_is_found_by_its_port_and_by_its_words(tmp_path: Path):
    port = free_ports(1)
    with started(LISTENER, port) as process:
        wait_for(lambda: process.poll() is None and state(process.pid) == "S", "it waits")
        time.sleep(0.2)
        with held(process_pause, tmp_path, listens_on=port, command="HTTPServer"):
            assert state(process.pid) == "T"
        assert state(process.pid) != "T"


def test_one_that_dies_under_the_fault_needs_no_undo_and_no_successor_is_touched(tmp_path: Path):
    with started(SLEEPER) as process:
        with held(process_pause, tmp_path, pid=process.pid) as lease:
            process.kill()
            process.wait(10)
        assert lease.undo is not None and lease.undo.proven and lease.undo.figures["gone_processes"] == 1.0


def test_nothing_is_left_of_it(tmp_path: Path):
    with started(SLEEPER) as process:
        book, holds, log = opened(process_pause, tmp_path)
        book.put("a", body(process_pause, pid=process.pid))
        wait_for(lambda: len(log.pending()[0]) == 1 and state(process.pid) == "T", "it is paused, and recorded")
        (record,) = log.pending()[0]
        assert (record.kind, record.data["pid"]) == ("resume", process.pid)
        book.release("a", "run-1")
        assert holds.wait(10.0)
        assert log.pending() == ([], {}) and state(process.pid) != "T"


def test_a_process_that_is_not_there_is_refused(tmp_path: Path):
    book, _, _ = opened(process_pause, tmp_path)
    with pytest.raises(NotInjectable, match="process_pause: pid 4194303 names no process"):
        book.put("a", body(process_pause, pid=4194303))
    assert book.leases() == []
