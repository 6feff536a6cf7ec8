"""kv_cache_bit_flip against the formats as their standards write them: every format, every class, every bit."""

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from chaos_mm.core.bits import FORMATS, class_bits, format_of
from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.kv_cache_bit_flip import kv_cache_bit_flip
from tests.contract.engine_samples import DTYPES, SampleKvCache, name_of, raw

# From the definitions: sign, exponent, mantissa from the top; top exponent bit alone; halves of what is left.
BITS: dict[str, dict[str, tuple[int, ...]]] = {
    "float32": {
        "mantissa_low": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
        "mantissa_high": (12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22),
        "exponent_low": (23, 24, 25),
        "exponent_mid": (26, 27, 28, 29),
        "exponent_top": (30,),
        "sign": (31,),
    },
    "float16": {
        "mantissa_low": (0, 1, 2, 3, 4),
        "mantissa_high": (5, 6, 7, 8, 9),
        "exponent_low": (10, 11),
        "exponent_mid": (12, 13),
        "exponent_top": (14,),
        "sign": (15,),
    },
    "bfloat16": {
        "mantissa_low": (0, 1, 2, 3),
        "mantissa_high": (4, 5, 6),
        "exponent_low": (7, 8, 9),
        "exponent_mid": (10, 11, 12, 13),
        "exponent_top": (14,),
        "sign": (15,),
    },
    "float8_e4m3fn": {
        "mantissa_low": (0, 1),
        "mantissa_high": (2,),
        "exponent_low": (3,),
        "exponent_mid": (4, 5),
        "exponent_top": (6,),
        "sign": (7,),
    },
    "float8_e5m2": {
        "mantissa_low": (0,),
        "mantissa_high": (1,),
        "exponent_low": (2, 3),
        "exponent_mid": (4, 5),
        "exponent_top": (6,),
        "sign": (7,),
    },
    "int8": {"mantissa_low": (0, 1, 2, 3), "mantissa_high": (4, 5, 6), "sign": (7,)},
}
# What the number one becomes (int8: one hundred), worked out by hand: each bit of the class alone.
ONE: dict[str, dict[str, set[float]]] = {
    "float32": {
        "mantissa_low": {1 + 2.0**-n for n in range(12, 24)},
        "mantissa_high": {1 + 2.0**-n for n in range(1, 12)},
        "exponent_low": {0.5, 0.25, 2.0**-4},
        "exponent_mid": {2.0**-8, 2.0**-16, 2.0**-32, 2.0**-64},
        "exponent_top": {math.inf},
        "sign": {-1.0},
    },
    "float16": {
        "mantissa_low": {1 + 2.0**-n for n in range(6, 11)},
        "mantissa_high": {1 + 2.0**-n for n in range(1, 6)},
        "exponent_low": {0.5, 0.25},
        "exponent_mid": {2.0**-4, 2.0**-8},
        "exponent_top": {math.inf},
        "sign": {-1.0},
    },
    "bfloat16": {
        "mantissa_low": {1 + 2.0**-n for n in range(4, 8)},
        "mantissa_high": {1.5, 1.25, 1.125},
        "exponent_low": {0.5, 0.25, 2.0**-4},
        "exponent_mid": {2.0**-8, 2.0**-16, 2.0**-32, 2.0**-64},
        "exponent_top": {math.inf},
        "sign": {-1.0},
    },
    "float8_e4m3fn": {
        "mantissa_low": {1.125, 1.25},
        "mantissa_high": {1.5},
        "exponent_low": {0.5},
        "exponent_mid": {0.25, 2.0**-4},
        "exponent_top": {256.0},
        "sign": {-1.0},
    },
    "float8_e5m2": {
        "mantissa_low": {1.25},
        "mantissa_high": {1.5},
        "exponent_low": {0.5, 0.25},
        "exponent_mid": {2.0**-4, 2.0**-8},
        "exponent_top": {math.inf},
        "sign": {-1.0},
    },
    "int8": {"mantissa_low": {101, 102, 96, 108}, "mantissa_high": {116, 68, 36}, "sign": {-28}},
}
CASES = [(dtype, bits) for dtype in DTYPES for bits in BITS[name_of(dtype)]]
IDS = [f"{name_of(dtype)}-{bits}" for dtype, bits in CASES]
WORD = {"float32": "<u4", "float16": "<u2", "bfloat16": "<u2"}


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "0", "kv_cache_bit_flip")


def _patterns(tensor: torch.Tensor) -> Any:
    """The bits of every element, as numpy reads them out of its bytes."""
    return np.frombuffer(raw(tensor), WORD.get(name_of(tensor.dtype), "u1")).astype(np.int64)


def _every(dtype: torch.dtype) -> SampleKvCache:
    """A cache that holds every bit pattern of its format (float32: 65,536 random ones)."""
    width = FORMATS[name_of(dtype)].width
    if width == 8:
        words = np.arange(256, dtype=np.uint8)
    else:
        words = np.random.default_rng(4).integers(0, 2**32, 65536, np.uint32) if width == 32 else np.arange(65536)
    flat = torch.frombuffer(bytearray(words.astype(f"u{width // 8}").tobytes()), dtype=dtype)
    return SampleKvCache({(0, "keys"): flat.view(4, -1, 8)})


def _decoded(pattern: int, name: str) -> float:
    """The value of a pattern by the definition of its format, in exact arithmetic."""
    if name == "int8":
        return pattern - 256 if pattern > 127 else pattern
    if name == "float32":
        return struct.unpack("<f", struct.pack("<I", pattern))[0]
    if name == "bfloat16":
        return struct.unpack("<f", struct.pack("<I", pattern << 16))[0]
    if name == "float16":
        return struct.unpack("<e", struct.pack("<H", pattern))[0]
    mantissa, bias = (3, 7) if name == "float8_e4m3fn" else (2, 15)
    sign, exponent, fraction = -1 if pattern >> 7 else 1, (pattern & 127) >> mantissa, pattern & ((1 << mantissa) - 1)
    if name == "float8_e4m3fn" and pattern & 127 == 127:
        return math.nan
    if name == "float8_e5m2" and exponent == 31:
        return sign * math.inf if fraction == 0 else math.nan
    scaled = fraction / (1 << mantissa) + (exponent > 0)
    return sign * scaled * 2.0 ** (max(exponent, 1) - bias)


def _values(patterns: Any, name: str) -> Any:
    return np.array([_decoded(int(pattern), name) for pattern in patterns])


@pytest.mark.parametrize("name", BITS)
def test_the_classes_are_those_of_the_definition_and_hold_every_bit_once(name: str):
    assert {cls: tuple(bits) for cls, bits in FORMATS[name].classes().items()} == BITS[name]
    assert sorted(bit for bits in BITS[name].values() for bit in bits) == list(range(FORMATS[name].width))


@pytest.mark.parametrize(("dtype", "bits"), CASES, ids=IDS)
def test_one_bit_of_the_class_and_no_other_changes_in_every_pattern_there_is(dtype: torch.dtype, bits: str):
    cache = _every(dtype)
    before = _patterns(cache.store[0, "keys"])
    made = kv_cache_bit_flip(cache, _rng(), share=1.0, bits=bits)
    after = _patterns(cache.store[0, "keys"])
    assert set((before ^ after).tolist()) == {1 << bit for bit in BITS[name_of(dtype)][bits]}
    values = _values(after, name_of(dtype))
    theirs = cache.store[0, "keys"].double().reshape(-1).numpy()
    assert np.array_equal(values, theirs, equal_nan=True), "torch reads the patterns as the standard does"
    assert made.achieved["flipped_elements"] == before.size
    assert made.achieved["nonfinite_values"] == np.count_nonzero(~np.isfinite(values))


@pytest.mark.parametrize(("dtype", "bits"), CASES, ids=IDS)
def test_what_the_number_one_becomes(dtype: torch.dtype, bits: str):
    start = 100 if dtype is torch.int8 else 1
    cache = SampleKvCache({(0, "keys"): torch.full((2, 200, 8), start, dtype=torch.float32).to(dtype)})
    kv_cache_bit_flip(cache, _rng(), share=1.0, bits=bits)
    assert set(cache.store[0, "keys"].double().reshape(-1).tolist()) == ONE[name_of(dtype)][bits]


@pytest.mark.parametrize("pattern", ["single", "multi", "warp_stride"])
@pytest.mark.parametrize(("dtype", "bits"), CASES, ids=IDS)
def test_the_same_flip_twice_is_nothing(dtype: torch.dtype, bits: str, pattern: str):
    cache = SampleKvCache.make(dtype, tokens=64)
    before = cache.bytes()
    for count in (0, 37):
        kv_cache_bit_flip(cache, _rng(), share=0.3, bits=bits, pattern=pattern, count=count)
        assert cache.bytes() != before
        kv_cache_bit_flip(cache, _rng(), share=0.3, bits=bits, pattern=pattern, count=count)
        assert cache.bytes() == before


@pytest.mark.parametrize("bits", ["exponent_low", "exponent_mid", "exponent_top"])
def test_a_class_that_a_format_lacks_is_refused_with_those_it_has(bits: str):
    cache = SampleKvCache.make(torch.int8)
    before = cache.bytes()
    with pytest.raises(InvalidParams, match=f"int8 has no bit class {bits}; it has mantissa_low, mantissa_high, sign"):
        kv_cache_bit_flip(cache, _rng(), bits=bits)
    assert cache.bytes() == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float8_e8m0fnu, torch.complex64, torch.bool])
def test_an_unsupported_format_is_refused_by_name(dtype: torch.dtype):
    cache = SampleKvCache({(0, "keys"): torch.zeros(2, 3, 4).to(dtype)})
    with pytest.raises(InvalidParams, match=f"{name_of(dtype)} is not supported; .* float32, float16, bfloat16"):
        kv_cache_bit_flip(cache, _rng())
    assert not cache.undo


def test_an_unknown_class_is_named():
    with pytest.raises(InvalidParams, match="no format has 'exponent'"):
        class_bits("bfloat16", "exponent")
    assert format_of("torch.bfloat16") is format_of(torch.bfloat16)


def _flips(**params: Any) -> tuple[Any, Any]:
    """One bit mask an element, and the outcome, on a bfloat16 cache of 8 x 4096 x 32."""
    cache = SampleKvCache.make(torch.bfloat16, layers=1, heads=8, tokens=4096, dim=32)
    before = _patterns(cache.store[0, "keys"])
    made = kv_cache_bit_flip(cache, _rng(), which="keys", **params)
    return before ^ _patterns(cache.store[0, "keys"]), made


@pytest.mark.parametrize("share", [1e-4, 0.01, 0.5])
def test_share_is_the_share_of_the_elements_and_counted(share: float):
    masks, made = _flips(share=share)
    wanted, spread = share * masks.size, math.sqrt(share * (1 - share) * masks.size)
    assert abs(np.count_nonzero(masks) - wanted) < 4.5 * spread
    assert made.achieved["flipped_elements"] == np.count_nonzero(masks)


def test_a_larger_share_strikes_what_a_smaller_one_does_in_the_same_bits_and_more():
    small, large = _flips(share=0.01, bits="mantissa_low")[0], _flips(share=0.2, bits="mantissa_low")[0]
    assert np.array_equal(large[small != 0], small[small != 0])
    assert np.count_nonzero(large) > 10 * np.count_nonzero(small)


@pytest.mark.parametrize("bits", ["mantissa_low", "exponent_mid"])
def test_bits_are_drawn_evenly(bits: str):
    masks, _ = _flips(share=0.5, bits=bits)
    counts = [np.count_nonzero(masks == 1 << bit) for bit in BITS["bfloat16"][bits]]
    mean = sum(counts) / len(counts)
    assert all(abs(count - mean) < 5 * math.sqrt(mean) for count in counts)
    assert sum(counts) == np.count_nonzero(masks)


def test_multi_flips_any_set_of_the_class_s_bits_but_never_none():
    masks, made = _flips(share=0.5, bits="exponent_mid", pattern="multi")
    kinds, counts = np.unique(masks[masks != 0], return_counts=True)
    assert kinds.tolist() == [n << 10 for n in range(1, 16)]
    assert all(abs(count - counts.mean()) < 5 * math.sqrt(counts.mean()) for count in counts)
    single = np.isin(kinds, [1 << bit for bit in range(10, 14)])
    assert counts[single].sum() / counts.sum() == pytest.approx(4 / 15, abs=0.01)
    assert made.achieved["flipped_elements"] == counts.sum()


def test_warp_stride_strikes_one_lane_of_every_32_and_its_share_is_of_that_lane():
    whole, part = _flips(share=1.0, pattern="warp_stride")[0], _flips(share=0.25, pattern="warp_stride")[0]
    lanes = set((np.flatnonzero(whole) % 32).tolist())
    assert len(lanes) == 1 and np.count_nonzero(whole) == whole.size // 32
    assert set((np.flatnonzero(part) % 32).tolist()) == lanes
    assert np.count_nonzero(part) == pytest.approx(whole.size / 32 / 4, rel=0.05)


@pytest.mark.parametrize("count", [1, 7, 1000, 1_000_000])
def test_count_is_exact_and_no_element_is_struck_twice(count: int):
    masks, made = _flips(count=count)
    assert np.count_nonzero(masks) == min(count, masks.size) == made.achieved["flipped_elements"]
    assert set(masks[masks != 0].tolist()) == {1 << 15}


# Share of values that a flip of the top exponent bit makes infinite or not a number: |x| in [1, 2) for an exponent
# that then is all ones; E4M3 has NaN at one pattern alone, from 1.75 up to what rounds to 1.875.
def _normal(low: float, high: float) -> float:
    return math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (torch.float32, _normal(1, 2)),
        (torch.bfloat16, _normal(1, 2)),
        (torch.float16, _normal(1, 2)),
        (torch.float8_e5m2, _normal(0.9375, 1.875)),
        (torch.float8_e4m3fn, _normal(1.8125, 1.9375)),
    ],
    ids=lambda value: name_of(value) if isinstance(value, torch.dtype) else "",
)
def test_nonfinite_values_are_counted_as_often_as_the_normal_law_says(dtype: torch.dtype, wanted: float):
    cache = SampleKvCache.make(dtype, tokens=4000)
    made = kv_cache_bit_flip(cache, _rng(), share=1.0, bits="exponent_top").achieved
    assert made["nonfinite_values"] / made["flipped_elements"] == pytest.approx(wanted, abs=0.006)
    json.loads(json.dumps(dict(made), allow_nan=False))


# Measured independently, by flipping single bits of a million normal values in numpy.
@pytest.mark.parametrize(("bits", "low", "high"), [("sign", 1.3, 1.4), ("exponent_top", 1e38, 3e38)])
def test_the_median_change_is_that_of_normal_values(bits: str, low: float, high: float):
    _, made = _flips(share=0.5, bits=bits)
    assert low < made.achieved["median_abs_change"] < high


def test_where_every_change_is_infinite_no_median_is_claimed():
    cache = SampleKvCache({(0, "keys"): torch.ones(2, 64, 8, dtype=torch.bfloat16)})
    made = kv_cache_bit_flip(cache, _rng(), share=1.0, bits="exponent_top").achieved
    assert made["nonfinite_values"] == made["flipped_elements"] == 1024
    assert "median_abs_change" not in made


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 0, 8), (2, 5, 3, 8)])
def test_any_shape_is_taken(shape: Sequence[int]):
    cache = SampleKvCache({(0, "keys"): torch.ones(tuple(shape))})
    made = kv_cache_bit_flip(cache, _rng(), share=1.0)
    assert (made is NOT_NOW) == (0 in shape)
    assert torch.equal(cache.store[0, "keys"], -torch.ones(tuple(shape)))


def test_too_small_a_share_for_any_element_passes_the_occasion():
    cache = SampleKvCache.make()
    before = cache.bytes()
    assert kv_cache_bit_flip(cache, _rng(), share=1e-9) is NOT_NOW
    assert cache.bytes() == before and not cache.undo
