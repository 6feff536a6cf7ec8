"""The page: who may read it, what it says when, and what its rings keep."""

import json
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import (
    LEASES,
    PAGE_BYTES,
    RECORDS,
    WORKERS,
    Column,
    Header,
    LeaseWord,
    WorkerWord,
    column_at,
    lease_at,
    record_at,
    spec_at,
    worker_at,
)
from chaos_mm.core.errors import ChaosMMError

SECOND = 10**9


def test_the_parts_of_the_page_do_not_overlap():
    words = [(lease_at(n), lease_at(n) + 8) for n in range(LEASES)]
    words += [(worker_at(n), column_at(n, 0)) for n in range(WORKERS)]
    words += [(column_at(w, n), column_at(w, n) + Column.COUNT) for w in range(WORKERS) for n in range(LEASES)]
    spans = [(0, 64 * 8), *((low * 8, high * 8) for low, high in words)]
    spans += [(spec_at(n), spec_at(n) + 8192) for n in range(LEASES)]
    spans += [(record_at(w, n), record_at(w, n) + 512) for w in range(WORKERS) for n in range(RECORDS)]
    spans.sort()
    assert all(this[1] <= after[0] for this, after in zip(spans, spans[1:], strict=False))
    assert spans[-1][1] == PAGE_BYTES


def test_the_file_is_private_and_a_second_one_is_not_made_there(tmp_path: Path):
    board = Board.create(tmp_path / "b", new_nonce())
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o600
    with pytest.raises(ChaosMMError, match="cannot be made: File exists"):
        Board.create(tmp_path / "b", new_nonce())
    board.close()
    assert not board.armed()


def test_another_nonce_another_version_and_no_nonce_are_refused(tmp_path: Path):
    nonce = new_nonce()
    board = Board.create(tmp_path / "b", nonce)
    with pytest.raises(ChaosMMError, match="made with another nonce"):
        Board.open(tmp_path / "b", new_nonce())
    with pytest.raises(ChaosMMError, match="32 hex digits"):
        Board.open(tmp_path / "b", "")
    board.words[2] += 1
    with pytest.raises(ChaosMMError, match="no page of this version"):
        Board.open(tmp_path / "b", nonce)
    board.close()


def test_links_other_modes_other_kinds_and_other_sizes_are_refused(tmp_path: Path):
    nonce = new_nonce()
    Board.create(tmp_path / "b", nonce).close()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    with pytest.raises(ChaosMMError, match="cannot be opened"):
        Board.open(tmp_path / "link", nonce)
    with pytest.raises(ChaosMMError, match="cannot be made"):
        Board.create(tmp_path / "link", nonce)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ChaosMMError, match="not a plain file"):
        Board.open(tmp_path / "pipe", nonce)
    (tmp_path / "b").chmod(0o640)
    with pytest.raises(ChaosMMError, match="open to others \\(mode 640\\)"):
        Board.open(tmp_path / "b", nonce)
    (tmp_path / "b").chmod(0o600)
    os.truncate(tmp_path / "b", 4096)
    with pytest.raises(ChaosMMError, match="4096 bytes"):
        Board.open(tmp_path / "b", nonce)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_refused(tmp_path: Path):
    nonce = new_nonce()
    Board.create(tmp_path / "b", nonce).close()
    os.chown(tmp_path / "b", 12345, -1)
    with pytest.raises(ChaosMMError, match="belongs to user 12345"):
        Board.open(tmp_path / "b", nonce)


def test_it_is_armed_until_the_last_lease_ends_and_no_longer(board: Board):
    now = time.monotonic_ns()
    assert not board.armed()
    board.publish(0, 1, {"name": "a"}, now + 60 * SECOND)
    board.publish(1, 2, {"name": "b"}, now + 90 * SECOND)
    assert board.armed() and board.words[0] == now + 90 * SECOND
    board.withdraw(1)
    assert board.armed() and board.words[0] == now + 60 * SECOND and board.deadline(1) == 0
    board.withdraw(0)
    assert not board.armed() and board.words[0] == 0


def test_it_disarms_by_itself(board: Board):
    board.publish(0, 1, {}, time.monotonic_ns() + SECOND // 10)
    assert board.armed()
    time.sleep(0.15)
    assert not board.armed()


def test_every_change_but_a_keepalive_is_a_new_generation(board: Board):
    first = board.publish(0, 1, {}, time.monotonic_ns() + SECOND)
    board.extend(0, time.monotonic_ns() + 2 * SECOND)
    assert board.generation == first
    assert board.withdraw(0) == first + 1


def test_whoever_sees_a_generation_finds_the_lease_of_it_armed_and_in_its_slot(board: Board):
    class Watched:
        """The page's words; whenever the generation is written, what else stands there."""

        def __init__(self, words: memoryview) -> None:
            self.words, self.seen = words, list[tuple[bool, int, int]]()

        def __getitem__(self, at: int) -> int:
            return int(self.words[at])

        def __setitem__(self, at: int, value: int) -> None:
            self.words[at] = value
            if at == Header.GENERATION:
                slot = lease_at(2)
                self.seen.append(
                    (
                        board.armed(),
                        self.words[slot + LeaseWord.SERIAL],
                        self.words[slot + LeaseWord.GENERATION] - value,
                    )
                )

    words = board.words
    board.words = watched = Watched(words)  # type: ignore[assignment]
    try:
        board.publish(2, 7, {"name": "a"}, time.monotonic_ns() + 60 * SECOND)
    finally:
        board.words = words
    assert watched.seen == [(True, 7, 0)]
    board.publish(3, 8, {"name": "b"}, time.monotonic_ns() + 60 * SECOND)
    first, second = (board.words[lease_at(slot) + LeaseWord.GENERATION] for slot in (2, 3))
    assert first < second == board.generation


def test_a_text_longer_than_a_slot_is_refused_and_arms_nothing(board: Board):
    with pytest.raises(ChaosMMError, match="longer than the 8192"):
        board.publish(0, 1, {"x": "y" * 9000}, time.monotonic_ns() + SECOND)
    assert not board.armed() and board.generation == 0


def test_a_text_of_another_lease_is_not_read_as_this_ones(board: Board):
    board.publish(0, 1, {"name": "a"}, time.monotonic_ns() + SECOND)
    board.words[lease_at(0) + 1] = 2  # as while the slot is being rewritten
    assert board.spec(0) is None


def test_a_slot_is_handed_out_again_only_when_its_process_is_gone(board: Board):
    slots = [board.join(f"w{n}") for n in range(WORKERS)]
    assert len({slot.number for slot in slots}) == WORKERS
    with pytest.raises(ChaosMMError, match="all 8 worker slots are taken"):
        board.join("one more")
    slots[3].set(WorkerWord.START, 1)  # a process that started another time: gone
    assert board.join("next").number == 3


finite = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.one_of(st.none(), st.dictionaries(st.text(max_size=10), finite, max_size=5)), max_size=600))
@settings(max_examples=40, deadline=None)
def test_a_ring_is_a_queue_that_refuses_when_it_is_full(tmp_path_factory: pytest.TempPathFactory, turns: list):
    """Against a plain list; None drains."""
    board = Board.create(tmp_path_factory.mktemp("ring") / "b", new_nonce())
    slot, waiting, refused = board.join("w"), [], 0
    for turn in turns:
        if turn is None:
            assert list(slot.pull()) == waiting
            waiting = []
        elif slot.push({"k": turn}):
            waiting.append({"k": turn})
        else:
            refused += 1
            assert len(waiting) == RECORDS or len(json.dumps({"k": turn}, separators=(",", ":"))) > 504
    assert list(slot.pull()) == waiting
    board.close()


def test_a_record_that_is_not_whole_waits(board: Board):
    slot = board.join("w")
    assert slot.push({"k": 1})
    at = record_at(slot.number, 0) + 9
    kept, board.page[at] = board.page[at], 0
    assert list(slot.pull()) == []
    board.page[at] = kept
    assert list(slot.pull()) == [{"k": 1}]


def test_one_writer_and_one_reader_lose_nothing(board: Board):
    slot, got = board.join("w"), []
    done = threading.Event()

    def write() -> None:
        for n in range(3000):
            while not slot.push({"n": n}):
                time.sleep(0.0002)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not (done.is_set() and slot.get(WorkerWord.HEAD) == slot.get(WorkerWord.TAIL)):
        got += [record["n"] for record in slot.pull()]
    thread.join()
    assert got == list(range(3000))


def test_a_lock_held_by_another_is_given_up_soon(board: Board):
    other = Board.open_any(board.path)
    with other.locked() as first, board.locked() as second:
        assert first and not second
    with board.locked() as third:
        assert third
    other.close()


def test_a_page_for_which_there_is_no_room_is_refused_and_leaves_no_file(tmp_path: Path):
    """By the limit on the size of files, in a child: a write beyond it fails as on a full disk."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        try:
            Board.create(tmp_path / "b", new_nonce())
        except ChaosMMError as error:
            os._exit(0 if "cannot be made" in str(error) and not (tmp_path / "b").exists() else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_beat_says_when_steps_were_last_seen_and_nothing_of_an_idle_engine(board: Board):
    slot = board.join("w")
    assert slot.beat(0) == 0 and slot.get(WorkerWord.LAST_STEP_NS) == 0
    slot.add(WorkerWord.STEPS, 3)
    assert slot.beat(0) == 3
    seen = slot.get(WorkerWord.LAST_STEP_NS)
    assert seen == slot.get(WorkerWord.BEAT_NS) > 0
    assert slot.beat(3) == 3
    assert slot.get(WorkerWord.LAST_STEP_NS) == seen < slot.get(WorkerWord.BEAT_NS)
