"""What a server tells, and who hears it."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chaos_mm.core import serving


class Ear:
    """A listener that writes down what it was told; keys get a letter more."""

    def __init__(self, letter: bytes = b"") -> None:
        self.told: list[tuple[str, Any]] = []
        self._letter = letter

    def model(self, model: Any) -> None:
        self.told.append(("model", model))

    def gone(self, model: Any) -> None:
        self.told.append(("gone", model))

    def cache(self, kept: Any) -> None:
        self.told.append(("cache", kept))

    def begin(self, batch: serving.Batch) -> None:
        self.told.append(("begin", batch.ids))

    def end(self, batch: serving.Batch) -> None:
        self.told.append(("end", batch.ids))

    def key(self, key: bytes, request: str) -> bytes:
        return key + self._letter


class Thing:
    """A model or a cache."""


def test_without_a_listener_nothing_happens_and_nothing_is_known() -> None:
    assert serving.running(["a"]) is serving.running(["b"])
    with serving.running(["a"]), serving.media("vision", ["a"]):
        assert serving.current() is None and serving.current_media() is None
        serving.finished(0)
    assert serving.media_key(b"key", "a") == b"key"


def test_a_late_listener_hears_of_what_still_exists() -> None:
    kept, lost, cache = Thing(), Thing(), Thing()
    for model in (kept, lost, kept):
        serving.announce_model(model)
    serving.announce_cache(cache)  # type: ignore[arg-type]
    del lost, model
    gc.collect()
    ear = Ear()
    end = serving.listen(ear)
    try:
        assert [one for one in ear.told if one[1] in (kept, cache)] == [("model", kept), ("cache", cache)]
        serving.withdraw_model(kept)
        assert ear.told[-1] == ("gone", kept)
    finally:
        end()
    later = Ear()
    serving.listen(later)()
    assert ("model", kept) not in later.told


def test_a_batch_is_known_on_its_own_thread_alone_and_until_its_end() -> None:
    ear = Ear()
    end = serving.listen(ear)
    seen: list[serving.Batch | None] = []
    try:
        with serving.running(["a", "b"], [["image", "text"], ["text"]]):
            batch = serving.current()
            assert batch is not None and batch.modalities == (frozenset({"image", "text"}), frozenset({"text"}))
            other = threading.Thread(target=lambda: seen.append(serving.current()))
            other.start()
            other.join()
            serving.finished(1)
            assert batch.finished == {1}
            with serving.media("vision", ["a"]):
                assert serving.current_media() == ("vision", ("a",))
            assert serving.current_media() is None
            with serving.running(["c"]):
                inner = serving.current()
                assert inner is not None and inner.ids == ("c",)
            assert serving.current() is batch
        assert serving.current() is None and seen == [None]
    finally:
        end()
    spans = [("begin", ("a", "b")), ("begin", ("c",)), ("end", ("c",)), ("end", ("a", "b"))]
    assert [one for one in ear.told if one[0] in ("begin", "end")] == spans


def test_a_batch_ends_where_the_server_fails() -> None:
    ear = Ear()
    end = serving.listen(ear)
    try:
        with pytest.raises(ZeroDivisionError), serving.running(["a"]):
            _ = 1 / 0
        assert serving.current() is None and ear.told[-1] == ("end", ("a",))
    finally:
        end()


def test_who_comes_in_the_middle_of_a_batch_hears_nothing_of_its_end() -> None:
    early, late = Ear(), Ear()
    end = serving.listen(early)
    try:
        with serving.running(["a"]):
            end_late = serving.listen(late)
        with serving.running(["b"]):
            end()
        assert [one for one in late.told if one[0] in ("begin", "end")] == [("begin", ("b",)), ("end", ("b",))]
        assert early.told[-1] == ("end", ("b",))  # it saw that one begin
    finally:
        end_late()


def test_keys_pass_every_listener() -> None:
    ends = [serving.listen(Ear(b"x")), serving.listen(Ear(b"y"))]
    try:
        assert serving.media_key(b"key", "a") == b"keyxy"
    finally:
        for end in ends:
            end()
    assert serving.media_key(b"key", "a") == b"key"


def _streaming(ids: list[str]) -> Iterator[serving.Batch | None]:
    with serving.running(ids):
        while True:
            yield serving.current()


def test_blocks_may_be_left_in_any_order() -> None:
    """A stream whose client went away is closed when somebody collects it."""
    ear = Ear()
    end = serving.listen(ear)
    try:
        first = _streaming(["a"])
        gone = next(first)
        with serving.running(["b"]) as second:
            first.close()
            assert serving.current() is second
            with serving.running(["c"]) as third:
                assert serving.current() is third
            assert serving.current() is second
        assert serving.current() is None
    finally:
        end()
    assert ear.told[-5:] == [("begin", ("b",)), ("end", ("a",)), ("begin", ("c",)), ("end", ("c",)), ("end", ("b",))]
    assert gone is not None and gone.finished == {0} and second.finished == {0}


def test_a_block_that_another_thread_leaves_is_over_here_too() -> None:
    end = serving.listen(Ear())
    try:
        stream = _streaming(["a", "b"])
        batch = next(stream)
        closing = threading.Thread(target=stream.close)
        closing.start()
        closing.join(5.0)
        assert not closing.is_alive() and serving.current() is None
        assert batch is not None and batch.finished == {0, 1}
    finally:
        end()


def test_a_block_entered_twice_is_two_batches() -> None:
    end = serving.listen(Ear())
    try:
        block = serving.running(["a"])
        with block as one:
            pass
        with block as other:
            assert serving.current() is other is not one
    finally:
        end()
