"""Draws and edits on tensors larger than one piece, where a key-value cache of a real model is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from chaos_mm.core.bits import FORMATS
from chaos_mm.core.rng import Rng
from chaos_mm.faults import get
from chaos_mm.tensors import Room, bits_of, changed, chosen, pattern_of, pieces, places
from tests.contract.engine_samples import DTYPES, SampleKvCache, name_of

LARGE = {"layers": 1, "heads": 3, "tokens": 700, "dim": 128}  # 89,600 elements a head: a piece of 65,536 and a rest
CPU = torch.device("cpu")


def rng() -> Rng:
    return Rng.derive(7, "r-1", "lease", "fault")


@pytest.mark.parametrize("share", [0.0, 1e-3, 0.03, 0.1, 0.2, 1.0])
@pytest.mark.parametrize("count", [1, 9, 65_536, 65_537, 300_001])
def test_places_are_those_of_the_mask_in_order_and_none_twice(count: int, share: float):
    mask = chosen(rng(), "a", torch.empty(count), share)
    runs = [run.clone() for run in places(rng(), "a", count, CPU, share)]
    found = torch.cat(runs) if runs else torch.empty(0, dtype=torch.int64)
    assert found.tolist() == mask.nonzero().view(-1).tolist()
    assert all(len(run) >= 16_384 for run in runs[:-1])
    assert abs(len(found) - share * count) <= 5 * max(1.0, (share * (1 - share) * count) ** 0.5)


def test_room_is_the_same_memory_again_until_it_is_too_small():
    room = Room()
    first = room.copy(torch.ones(2, 3, 4, dtype=torch.bfloat16))
    assert first.tolist() == torch.ones(2, 3, 4).tolist()
    second = room.like(torch.empty(12, dtype=torch.float32))
    assert (second.data_ptr(), second.dtype, second.shape) == (first.data_ptr(), torch.float32, (12,))
    larger = room.copy(torch.arange(60.0).view(3, 4, 5)[:, ::2])
    assert larger.is_contiguous()
    assert larger.tolist() == torch.arange(60.0).view(3, 4, 5)[:, ::2].tolist()


@pytest.mark.parametrize("shape", [(3, 0, 8), (1, 1, 1), (2, 5, 3, 8), (3, 700, 128), (2, 3, 70_000), (2, 40_000, 2)])
def test_pieces_are_views_that_cover_everything_once(shape: Sequence[int]):
    whole, other = torch.zeros(*shape, dtype=torch.int32), torch.ones(*shape)[..., :1].expand(shape)
    for piece, beside in pieces(whole, other):
        assert piece.shape == beside.shape
        assert piece.numel() <= max(65_536, shape[-1]), "no larger than asked, but for a row that is"
        piece += 1
    assert whole.eq(1).all()


@pytest.mark.parametrize("step", [1, 2])
def test_changed_counts_bit_patterns_in_every_piece(step: int):
    old = torch.randn(2, 1400, 128, dtype=torch.bfloat16)[:, ::step]
    old[0, 0, 0] = float("nan")
    new = old.clone()
    assert changed(old, new) == 0, "NaN is itself"
    at = torch.randperm(new.numel())[:1000]
    new.view(-1)[at] = -new.view(-1)[at]
    assert changed(old, new) == 1000


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.itemsize < 4], ids=name_of)
def test_the_bits_that_make_a_number_infinite_or_none_are_those_of_every_pattern(dtype: torch.dtype):
    patterns = torch.arange(1 << (8 * dtype.itemsize), dtype=torch.int32).to(
        torch.int16 if dtype.itemsize == 2 else torch.uint8
    )
    held = FORMATS[name_of(dtype)].nonfinite_bits
    wanted = ~patterns.view(dtype).float().isfinite()
    assert wanted.any() == bool(held)
    assert not held or torch.equal((patterns & held) == held, wanted)


@pytest.mark.parametrize(("value", "dtype", "wanted"), [("nan", "float16", 0x7E00), ("-inf", "float8_e5m2", 0xFC)])
def test_a_pattern_is_that_of_the_format(value: str, dtype: str, wanted: int):
    assert pattern_of(float(value), getattr(torch, dtype)) == wanted


def _struck(fault: str, cache: SampleKvCache, **params: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """(what stood in the keys, what stands there, the figures); the undo must give the first back."""
    before = cache.bytes()
    old = cache.store[0, "keys"].clone()
    made = get(fault)(cache, rng(), **params)
    new = cache.store[0, "keys"].clone()
    cache.restore()
    assert cache.bytes() == before
    return old, new, dict(made.achieved)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_dropped_tokens_of_a_large_part_are_the_same_in_every_head_and_counted(dtype: torch.dtype):
    cache = SampleKvCache.make(dtype, **LARGE)
    old, new, figures = _struck("kv_cache_zero", cache, share=0.25, which="keys")
    dropped = new.float().eq(0).all(dim=-1)  # a zero below 0 stays what it is
    assert dropped[0].tolist() == dropped[1].tolist() == dropped[2].tolist()
    assert 120 < int(dropped[0].sum()) < 230
    assert torch.equal(bits_of(new)[~dropped], bits_of(old)[~dropped])
    assert figures["zeroed_elements"] == int((old.float() != 0)[dropped].sum())


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_large_part_misread_by_stride_is_each_head_transposed(dtype: torch.dtype):
    old, new, figures = _struck("kv_cache_misread", SampleKvCache.make(dtype, **LARGE), what="stride", which="keys")
    wanted = bits_of(old).numpy().reshape(3, 128, 700).transpose(0, 2, 1)
    assert np.array_equal(bits_of(new).numpy(), wanted)
    assert figures["changed_elements"] == int((wanted != bits_of(old).numpy()).sum())


def test_a_large_part_misread_as_another_format_is_the_same_bits_read_so():
    cache = SampleKvCache.make(torch.bfloat16, **LARGE)
    old, new, _ = _struck("kv_cache_misread", cache, what="dtype", which="keys")
    wanted = old.view(torch.float16).double().to(torch.bfloat16)
    assert torch.equal(new.view(torch.int16), wanted.view(torch.int16))


def test_large_halves_are_exchanged():
    cache = SampleKvCache.make(torch.bfloat16, **LARGE)
    values_before = cache.store[0, "values"].clone()
    _, new, figures = _struck("kv_cache_misread", cache, what="halves")
    assert torch.equal(new.view(torch.int16), values_before.view(torch.int16))
    assert figures["changed_elements"] == 2 * changed(cache.store[0, "keys"], cache.store[0, "values"])


def test_a_large_part_takes_another_canary_s_memory():
    cache = SampleKvCache.make(torch.bfloat16, **LARGE)
    cache.donors = [SampleKvCache.make(torch.bfloat16, **LARGE | {"tokens": 600}, seed=2)]
    old, new, _ = _struck("kv_cache_swap", cache)
    assert torch.equal(new[:, :600], cache.donors[0].store[0, "keys"])
    assert torch.equal(new[:, 600:], old[:, 600:])


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_poison_in_a_large_part_stands_where_it_was_drawn_and_nowhere_else(value: str):
    cache = SampleKvCache.make(torch.float16, **LARGE)
    old, new, figures = _struck("kv_cache_nonfinite", cache, share=0.05, value=value, which="keys")
    struck = ~new.isfinite()
    assert int(struck.sum()) == figures["nonfinite_values"]
    assert torch.equal(new[~struck], old[~struck])
    assert abs(int(struck.sum()) / new.numel() - 0.05) < 0.003


def test_flips_in_a_large_part_are_counted_one_by_one():
    cache = SampleKvCache.make(torch.bfloat16, **LARGE)
    wanted = {"share": 0.1, "bits": "exponent_mid", "pattern": "multi", "which": "keys"}
    old, new, figures = _struck("kv_cache_bit_flip", cache, **wanted)
    assert figures["flipped_elements"] == changed(old, new)
    assert figures["nonfinite_values"] == int((~new.isfinite()).sum())
    assert int((bits_of(old) ^ bits_of(new)).bitwise_and(~(0b1111 << 10)).count_nonzero()) == 0
