"""The record store: bounded by number and bytes, and it knows what is still open."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from chaos_mm.load.store import Store
from chaos_mm.sli.records import Record


def record(n: int, due: float = 0.0, took: float = 0.5, **fields: str) -> Record:
    return Record(id=f"r{n}", n=n, scheduled_at=due, ended_at=due + took, **fields)  # type: ignore[arg-type]


def numbers(records: list[Record]) -> list[int]:
    return [found.n for found in records]


def test_number_is_bounded() -> None:
    store = Store(max_records=10)
    for n in range(25):
        store.add(record(n, float(n)))
    assert numbers(store.since()) == list(range(15, 25))
    assert (len(store), store.dropped) == (10, 15)


def test_bytes_are_bounded() -> None:
    store = Store(max_bytes=10_000)
    for n in range(50):
        store.add(record(n, float(n), answer="x" * 512))
    assert 3 <= len(store) <= 8
    assert len(store) + store.dropped == 50
    tiny = Store(max_bytes=1)
    tiny.add(record(1))
    assert len(tiny) == 1


def test_since_finds_by_schedule_though_requests_end_in_another_order() -> None:
    store = Store()
    slow = record(0, 0.0, took=50.0)
    for n in range(1, 20):
        store.add(record(n, float(n)))
    store.add(slow)
    assert numbers(store.since(15.0)) == [15, 16, 17, 18, 19]
    assert numbers(store.since(0.0))[-1] == 0


def test_settled_until_the_oldest_open_request() -> None:
    store = Store()
    assert store.settled_until(100.0) == 100.0
    for n, due in ((1, 90.0), (2, 95.0), (3, 101.0)):
        store.expect(record(n, due))
    assert store.settled_until(100.0) == 90.0
    assert numbers(store.open(100.0)) == [1, 2]
    # With patience the old one is known to be overdue; what is younger is still waited for.
    assert [store.settled_until(100.0, patience) for patience in (4.0, 5.0, 10.0)] == [100.0, 95.0, 90.0]
    store.add(record(1, 90.0))
    assert store.settled_until(100.0) == 95.0
    store.forget("r2")
    assert store.settled_until(100.0) == 100.0
    assert store.settled_until(102.0) == 101.0


def test_an_open_request_knows_when_it_was_sent() -> None:
    store = Store()
    store.expect(record(1, 90.0))
    assert [found.lag_seconds for found in store.open(93.0)] == [3.0]  # the load itself has not sent it yet
    store.sent("r1", 93.5, "4072")
    (found,) = store.open(99.0)
    assert (found.sent_at, found.lag_seconds, found.expected) == (93.5, 3.5, "4072")
    store.sent("unknown", 93.5, "4072")
    assert len(store.open(99.0)) == 1


def test_the_file_gets_every_record_as_a_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"id":"before"}\n')
    store = Store(max_records=2, file=path)
    for n in range(5):
        store.add(record(n))
    store.close()
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [
        "before",
        "r0",
        "r1",
        "r2",
        "r3",
        "r4",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_counted_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(file=Path("/dev/full"))
    for n in range(3):
        store.add(record(n))
    store.close()
    assert (len(store), store.unwritten) == (3, 3)
    assert [line.message for line in caplog.records] == [f"records file cannot be written: {os.strerror(28)}"]


def test_a_record_that_came_long_after_its_answer_hides_none() -> None:
    store = Store()
    for n in range(10):
        store.add(record(n, 100.0 + n))
    store.add(replace(record(99, 99.0), ended_at=99.9))  # its connection stayed open
    assert [found.id for found in store.since(100.0)] == [f"r{n}" for n in range(10)]
    assert len(store.since(99.0)) == 11 and store.since(200.0) == []


def test_until_when_something_was_forgotten() -> None:
    store = Store(max_records=2)
    for n, at in enumerate((5.0, 9.0, 3.0, 11.0)):
        store.add(record(n, at))
    assert (store.dropped, store.forgotten_until) == (2, 9.0) and Store().forgotten_until < 0
