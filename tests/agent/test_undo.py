"""The undo of tensors, against a model that is a plain list of bytes: whatever the dtype, NaN and owners included."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.agent.undo import UndoStore, as_integers
from chaos_mm.core.errors import ChaosMMError

pytestmark = pytest.mark.model

torch.set_num_threads(1)
DTYPES = {
    1: (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8),
    2: (torch.bfloat16, torch.float16),
    4: (torch.float32, torch.int32),
    8: (torch.float64,),
}
KINDS = [(size, dtype) for size, dtypes in DTYPES.items() for dtype in dtypes]
SIZE = 24


def tensor(raw: bytes, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=dtype).clone()


def raw(value: torch.Tensor) -> bytes:
    return as_integers(value.contiguous()).numpy().tobytes()


@st.composite
def stories(draw: st.DrawFn) -> tuple[int, torch.dtype, bytes, bytes, bytes]:
    """Element size, dtype, and the bytes before, as the fault writes them, and as the engine leaves them."""
    size, dtype = draw(st.sampled_from(KINDS))
    some = st.binary(min_size=size, max_size=size)
    before = draw(st.lists(some, min_size=SIZE, max_size=SIZE))
    wrote = [draw(st.one_of(st.just(old), some)) for old in before]
    after = [draw(st.one_of(st.just(bad), some)) for bad in wrote]
    return size, dtype, b"".join(before), b"".join(wrote), b"".join(after)


@given(stories(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_exactly_what_is_still_the_faults_comes_back(story: Any, strided: bool):
    size, dtype, before, wrote, after = story
    place = tensor(before, dtype)
    if strided:  # every other element of a wider memory
        wide = torch.zeros(2 * SIZE, dtype=dtype)
        as_integers(wide)[::2] = as_integers(place)
        place = wide[::2]
    store = UndoStore()
    store.write(place, tensor(wrote, dtype), lease=1)
    assert raw(place) == wrote
    as_integers(place).copy_(as_integers(tensor(after, dtype)))
    done = store.restore(1)

    pieces = [[text[i : i + size] for i in range(0, len(text), size)] for text in (before, wrote, after)]
    expected = [old if bad == now and bad != old else now for old, bad, now in zip(*pieces, strict=True)]
    assert raw(place) == b"".join(expected)
    changed = sum(old != bad for old, bad, _ in zip(*pieces, strict=True))
    back = sum(old != bad and bad == now for old, bad, now in zip(*pieces, strict=True))
    assert (done.restored_elements, done.skipped_elements) == (back, changed - back)
    assert store.held_bytes == 0 and store.restore(1).restored_elements == 0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 7), st.integers(1, 8)), min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_leases_that_overlap_end_in_any_order_and_leave_nothing(writes: list[tuple[int, int, int]]):
    """Each writes random spans of one memory; the last one to end finds everything as it was."""
    memory = torch.arange(16, dtype=torch.float32)
    clean, store = memory.clone(), UndoStore()
    for n, (lease, start, length) in enumerate(writes):
        view = memory[start : start + length]
        store.write(view, view * 0 - n - 1, lease=lease)
    waiting = {1, 2, 3}
    for _ in writes:
        waiting = {lease for lease in sorted(waiting) if store.restore(lease).waiting}
    assert not waiting and memory.equal(clean) and store.held_bytes == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2, torch.float32])
def test_nan_is_put_back_with_its_very_bits(dtype: torch.dtype):
    view = torch.full((64,), float("nan"), dtype=dtype)
    as_integers(view)[0] += 1 if dtype is not torch.float8_e5m2 else 0
    before = raw(view)
    store = UndoStore()
    store.write(view, torch.ones(64, dtype=dtype), lease="a")
    assert store.restore("a").restored_elements == 64
    assert raw(view) == before


def test_a_place_that_moved_is_found_and_one_that_is_gone_is_left():
    first, second = torch.zeros(4, 3), torch.zeros(4, 3)
    store, engine = UndoStore(), {"a": first, "b": second}
    store.write(first, first + 1, lease=1, locate=lambda: engine["a"][:4])
    store.write(second, second + 1, lease=1, locate=lambda: engine.get("b"))
    engine["a"] = torch.cat([first, torch.full((1, 3), 9.0)])  # as a dynamic cache does at every step
    del engine["b"]
    done = store.restore(1)
    assert engine["a"].tolist() == [[0.0] * 3] * 4 + [[9.0] * 3]
    assert second.tolist() == [[1.0] * 3] * 4
    assert (done.restored_elements, done.skipped_elements, done.reason) == (12, 12, "")


def test_one_that_fails_never_stops_the_others():
    places = [torch.zeros(4) for _ in range(3)]
    store = UndoStore()

    def lost() -> Any:
        raise LookupError("the layer is gone")

    for n, place in enumerate(places):
        store.write(place, place + 1, lease=1, locate=lost if n == 1 else None)
    done = store.restore(1)
    assert [place.sum().item() for place in places] == [0, 4, 0]
    assert done.restored_elements == 8 and "LookupError: the layer is gone" in done.reason
    assert store.restore(1).reason == "" and not store.pending(1)


def test_another_shape_at_undo_time_is_an_error_not_a_guess():
    place = torch.zeros(4)
    store = UndoStore()
    store.write(place, place + 1, lease=1, locate=lambda: torch.zeros(5))
    assert "has shape (5,) now; (4,) was written" in store.restore(1).reason


def test_beyond_the_cap_the_place_is_invalidated_or_the_write_refused():
    store, dropped = UndoStore(limit_bytes=40), []
    small, large = torch.zeros(4), torch.zeros(16)
    assert store.write(small, small + 1, lease=1) == 32
    with pytest.raises(ChaosMMError, match="more than the 8 left of 40.*CHAOS_MM_AGENT_UNDO_BYTES"):
        store.write(large, large + 1, lease=1)
    assert large.sum() == 0

    def drop() -> int:
        dropped.append(1)
        return 3

    assert store.write(large, large + 1, lease=1, invalidate=drop) == 0
    assert large.sum() == 16
    done = store.restore(1)
    assert (done.invalidated_blocks, done.restored_elements, done.saved_bytes) == (3, 4, 32)
    assert dropped == [1] and large.sum() == 16 and store.held_bytes == 0


def test_few_changed_elements_cost_few_bytes():
    view = torch.zeros(1000, dtype=torch.bfloat16)
    new = view.clone()
    new[7] = 1
    store = UndoStore()
    assert store.write(view, new, lease=1) == 12
    assert store.restore(1).restored_elements == 1 and view.sum() == 0


def test_what_cannot_be_written_is_refused_and_changes_nothing():
    view, store = torch.zeros(4), UndoStore()
    with pytest.raises(ValueError, match="shape \\(3,\\) was given for a place of \\(4,\\)"):
        store.write(view, torch.ones(3), lease=1)
    with pytest.raises(ValueError, match="the view itself was given"):
        store.write(view, view, lease=1)
    with pytest.raises(ValueError, match="complex128 cannot be undone"):
        store.write(torch.zeros(4, dtype=torch.complex128), torch.zeros(4), lease=1)
    assert not store.pending(1)


def test_a_reversed_alias_of_the_view_is_written_as_it_was_given():
    view = torch.arange(6.0).reshape(2, 3)
    square = torch.arange(9.0).reshape(3, 3)
    store = UndoStore()
    store.write(square, square.T, lease=1)
    assert square.tolist() == torch.arange(9.0).reshape(3, 3).T.tolist()
    assert store.restore(1).restored_elements == 6
    assert view.sum() == 15 and square.tolist() == torch.arange(9.0).reshape(3, 3).tolist()


def test_listeners_hear_what_became_of_their_place():
    view, heard = torch.zeros(4), []
    store = UndoStore()
    store.write(view, view + 1, lease=1, on_restore=lambda back, kept: heard.append((back, kept)))
    view[0] = 5
    store.restore(1)
    assert heard == [(3, 1)]


def test_what_is_gone_makes_room_for_what_lives():
    """A cache goes with its request; a lease that outlives many requests must not fill the store with their bytes."""
    store, caches = UndoStore(limit_bytes=3 * 64), []

    def struck(number: int) -> None:
        caches.append(torch.zeros(8))
        store.write(caches[number], torch.ones(8), lease=1, locate=lambda: caches[number])

    for number in range(20):
        struck(number)
        if number < 19:
            caches[number] = None
    assert store.held_bytes <= 3 * 64 and store.written(1) == 20
    before = store.written(1)
    struck(20)
    assert store.restore(1, since=before).restored_elements == 8  # the newest alone
    done = store.restore(1)
    assert (done.restored_elements, done.skipped_elements, done.saved_bytes) == (8, 19 * 8, 20 * 64)
    assert torch.equal(caches[19], torch.zeros(8)) and (store.held_bytes, store.written(1)) == (0, 0)


def test_what_still_stands_is_never_let_go_for_room():
    store, place = UndoStore(limit_bytes=64), torch.zeros(8)
    store.write(place, torch.ones(8), lease=1, locate=lambda: place)
    with pytest.raises(ChaosMMError, match="more than the 0 left of 64"):
        store.write(torch.zeros(8), torch.ones(8), lease=2)
    assert store.restore(1).restored_elements == 8
