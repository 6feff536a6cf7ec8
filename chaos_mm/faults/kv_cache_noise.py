"""Noise on what attention remembers."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from chaos_mm.core.engine import AfterTokens, Heads, KvCache, KvPart, Layers, Positions, Which
from chaos_mm.core.fault import Param, Target, fault
from chaos_mm.core.kv_cache import rewrite
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import Room, Words, chunks, sample

_LEVELS = 1 << 12  # equally likely values of the noise, out to 3.7 sigma: a table that stays in first-level cache
_WIDE = 1e30  # formats that reach beyond need no stop


@fault(
    Target.KV_CACHE,
    dose="sigma",
    presets={1: {"sigma": 0.1}, 2: {"sigma": 0.3}, 3: {"sigma": 0.5}, 4: {"sigma": 1.0}, 5: {"sigma": 2.0}},
)
def kv_cache_noise(
    cache: KvCache,
    rng: Rng,
    *,
    sigma: Annotated[float, Param("noise, in standard deviations of the head's own values", ge=0, le=10)] = 0.5,
    layers: Layers = "all",
    heads: Heads = "all",
    positions: Positions = "all",
    which: Which = "both",
    after_tokens: AfterTokens = 1,
) -> Any:
    """Add Gaussian noise to a request's keys and values, as a lossy transfer or a badly scaled quantisation does.

    The noise of a head is sigma times that head's standard deviation (over up to 16,384 of its values), so that one
    dose means the same in every layer. Noise on cached keys is an attack of the literature too ("malicious token
    injection", arXiv 2510.17098: the shift of the logits is bounded by the norms of noise and query); real relatives
    are fp8 caches with unfit scales (vLLM issue 13133) and caches that degrade over a transfer (SGLang issue 23020).

    The noise takes 4,096 equally likely levels of the normal law, out to 3.7 sigma. It is added in float32 and the sum
    cast back: float8 and float16 stop at their largest finite value, int8 is rounded and saturates.

    Struck once a request, before output token ``after_tokens`` is computed; 0 strikes what the prefix cache brought,
    and passes requests without a hit. Reports ``parts``, ``elements`` and ``noise_sigma``, the root mean square change
    after the cast, in standard deviations (measured on up to 16,384 values a head).
    """
    room = Room()

    def change(part: KvPart, label: str) -> tuple[Any, Mapping[str, float]] | None:
        words = Words(rng, label, part.tensor.device)
        return None if sigma == 0 else _noisy(part.tensor, room.like(part.tensor), words, sigma)

    place = {"layers": layers, "heads": heads, "positions": positions, "which": which}
    return rewrite(cache, after_tokens, change, **place)


def _noisy(tensor: Any, new: Any, words: Words, sigma: float) -> tuple[Any, Mapping[str, float]]:
    import torch

    squares = []
    for old, made in zip(tensor, new, strict=True):
        values = sample(old)
        std = values[values.isfinite()].std(correction=0).nan_to_num()
        _add(old.reshape(-1), made.view(-1), float(std) * sigma, words)
        squares.append(((sample(made) - values) / std.clamp(min=1e-30)).square().nan_to_num(0, 0, 0).mean())
    return new, {"noise_sigma": float(torch.stack(squares).mean().sqrt())}


def _add(old: Any, made: Any, scale: float, words: Words) -> None:
    """Old plus noise into made, both flat."""
    import torch

    narrow = torch.iinfo(old.dtype) if old.dtype is torch.int8 else torch.finfo(old.dtype)
    levels, ranges = _levels(old.device) * scale, list(chunks(old.numel(), old.device))
    # Buffers of its own for each step, reused: fresh memory would cost more than the noise.
    size, device = max(stop - start for start, stop in ranges), old.device
    level, noise = (torch.empty(size, dtype=kind, device=device) for kind in (torch.int64, torch.float32))
    for start, stop in ranges:
        at, added, values = level[: stop - start], noise[: stop - start], old[start:stop]
        at.copy_(words.take(stop - start, 16).bitwise_and_(_LEVELS - 1))
        torch.index_select(levels, 0, at, out=added)
        added.add_(values.float() if narrow.bits == 8 else values)
        if narrow.max < _WIDE:
            added.clamp_(narrow.min, narrow.max)
        made[start:stop] = added.round_() if old.dtype is torch.int8 else added


@lru_cache(maxsize=4)
def _levels(device: Any) -> Any:
    """Midpoint quantiles of the normal law in ascending order, float32, scaled to a deviation of one."""
    import torch

    middles = (torch.arange(_LEVELS, dtype=torch.float64) + 0.5) / _LEVELS
    levels = torch.special.ndtri(middles)
    return (levels / levels.std(correction=0)).to(device, torch.float32)
