"""Flipped bits in what attention remembers."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from chaos_mm.core.bits import BitClass, class_bits, format_of
from chaos_mm.core.engine import AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import rewrite
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, Words, bits_of, places

_LANES = 32  # threads of a warp
_SAMPLE = 256  # changes kept of a chunk, for the median
_MIXED = 30  # bits of a place's own draw
_POSITIVE = (1 << 62) - 1
Pattern = Literal["single", "multi", "warp_stride"]


@fault(
    Target.KV_CACHE,
    dose="share",
    presets={1: {"share": 1e-5}, 2: {"share": 1e-4}, 3: {"share": 1e-3}, 4: {"share": 1e-2}, 5: {"share": 0.1}},
)
def kv_cache_bit_flip(
    cache: KvCache,
    rng: Rng,
    *,
    share: Annotated[float, Param("elements struck, of those the pattern can reach", ge=0, le=1)] = 1e-3,
    bits: Annotated[BitClass, Param("which bits: their weight in the number, whatever its format")] = "sign",
    pattern: Annotated[Pattern, Param("one bit, several bits, or one bit in one lane of every 32")] = "single",
    count: Annotated[
        int, Param("exactly so many elements a part instead of the share; 0 = the share decides", ge=0, le=1_000_000)
    ] = 0,
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "both",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Flip bits in a request's keys and values, as silent data corruption in memory or arithmetic does.

    True bit patterns of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 and int8; another format is refused by
    name. Classes: the lower and upper half of the mantissa, the lower and middle part of the exponent, its top bit
    (which makes 27 % of bfloat16 values of ordinary size infinite or not a number), and the sign. int8 has no exponent:
    its classes are mantissa_low, mantissa_high and sign, and no flip of it is ever not a number.

    ``single`` flips one bit of the class in each element struck, drawn evenly; ``multi`` any of the class's bits, at
    least one (less than 40 % of gate-level faults flip a single bit: arXiv 2605.04213); ``warp_stride`` is ``single``
    in one lane of every 32 elements, the periodic pattern of the same study, and its share is of that lane. No element
    is struck twice, so the same flip again restores every bit. Flips in cached blocks shared by a prefix: arXiv
    2604.17249 (13 of 16 bits of bfloat16 give fluent, altered text).

    Struck once a request, before output token ``after_tokens`` is computed; 0 strikes what the prefix cache brought,
    and passes requests without a hit. Reports ``parts``, ``elements``, ``flipped_elements``, ``nonfinite_values`` (of
    the flipped ones, afterwards) and ``median_abs_change`` (of those that stay finite).
    """
    room = Room()

    def change(part: KvPart, label: str) -> tuple[Any, Mapping[str, float]] | None:
        return _flipped(room.copy(part.tensor), rng, label, bits, pattern, share, count)

    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    return rewrite(cache, after_tokens, change, **place)


def _flipped(
    new: Any, rng: Rng, label: str, bits: str, pattern: str, share: float, count: int
) -> tuple[Any, Mapping[str, float]] | None:
    within = class_bits(new.dtype, bits)
    flat = bits_of(new.view(-1))
    if pattern == "warp_stride":
        flat = flat[rng.key("lane")[0] % _LANES :: _LANES]
    tally = _Tally(new.dtype)
    key = int.from_bytes(rng.key(label + " bits", 7), "big")
    counted = _counted(flat, Words(rng, label, flat.device), count) if count else None
    for struck in counted or places(rng, label, flat.numel(), flat.device, share):
        old = flat.index_select(0, struck)
        made = old ^ _masks(struck, key, within, pattern).to(old.dtype)
        flat.index_copy_(0, struck, made)
        tally.add(old, made)
    return (new, tally.figures()) if tally.flipped else None


def _counted(flat: Any, words: Words, count: int) -> Iterator[Any]:
    """Exactly so many different indices, or all there are."""
    import torch

    if 4 * count >= flat.numel():
        yield words.take(flat.numel(), 64).argsort()[:count]
        return
    # At most one in four is taken, so twice as many draws hold enough different ones but for a chance below 1e-9.
    drawn = (words.take(2 * count + 64, 64) >> 1 & _POSITIVE) % flat.numel()
    yield torch.tensor(list(dict.fromkeys(drawn.tolist()))[:count], device=flat.device)


def _masks(struck: Any, key: int, within: range, pattern: str) -> Any:
    """What to exclusive-or each place with, as int64: a function of key and place alone, whatever else is struck."""
    import torch

    kinds = len(within) if pattern != "multi" else (1 << len(within)) - 1
    if kinds == 1:
        return torch.full_like(struck, 1 << within.start)
    drawn = _mixed(struck + key).mul_(kinds).bitwise_right_shift_(_MIXED)  # many times as fast as a remainder
    if pattern == "multi":
        return drawn.add_(1).bitwise_left_shift_(within.start)
    return torch.bitwise_left_shift(1, drawn.add_(within.start))


def _mixed(words: Any) -> Any:
    """The finaliser of splitmix64 (Steele, Lea, Flood, 2014) on int64, its top 30 bits: evenly spread, never below 0.

    The words are overwritten.
    """
    words.bitwise_xor_(words >> 30).mul_(-0x40A7B892E31B1A47)
    words.bitwise_xor_(words >> 27).mul_(-0x6B2FB644ECCEEE15)
    return words.bitwise_right_shift_(64 - _MIXED).bitwise_and_((1 << _MIXED) - 1)


class _Tally:
    """Counts what was flipped, and keeps a sample of how far."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.all_ones = dtype, format_of(dtype).nonfinite_bits
        self.flipped = self.nonfinite = 0
        self.changes: list[Any] = []

    def add(self, old: Any, new: Any) -> None:
        self.flipped += old.numel()
        if self.all_ones:
            self.nonfinite += int(((new & self.all_ones) == self.all_ones).sum())
        step = max(1, old.numel() // _SAMPLE)
        before, after = (bits[::step].contiguous().view(self.dtype).double() for bits in (old, new))
        self.changes.append((after - before).abs())

    def figures(self) -> dict[str, float]:
        import torch

        changes = torch.cat(self.changes)
        finite = changes[changes.isfinite()]
        figures: dict[str, float] = {"flipped_elements": self.flipped, "nonfinite_values": self.nonfinite}
        return figures | ({"median_abs_change": float(finite.median())} if finite.numel() else {})
