"""What corrupting a key-value cache costs: each fault over 1 GiB against a plain ``add_(randn_like)``, and a hit.

``python -m benchmarks.engine_bench [--rounds N] [--gib G]`` prints one table: process CPU seconds for the whole cache
(bfloat16, 28 layers, 4 heads of 128), on one thread, every contender once a round in turn; the ratio to the plain
addition with the interval that 95 of 100 bootstrap medians fall in; and the milliseconds of a hit, one request of 256
tokens (14 MiB) through the agent's own undo store, its restore among them. Exit code 1 where a fault is slower than
the plain addition, interval and all.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from chaos_mm.agent.undo import UndoStore
from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults import get
from chaos_mm.sli.statistics import quantile

LAYERS, HEADS, DIM = 28, 4, 128
TOKEN_BYTES = LAYERS * 2 * HEADS * DIM * 2
HIT_TOKENS = 256
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kv_cache_noise sigma=0.5": ("kv_cache_noise", {}),
    "kv_cache_bit_flip share=1e-3 sign": ("kv_cache_bit_flip", {}),
    "kv_cache_bit_flip share=0.1 exponent_mid multi": (
        "kv_cache_bit_flip",
        {"share": 0.1, "bits": "exponent_mid", "pattern": "multi"},
    ),
    "kv_cache_bit_flip share=1 warp_stride": ("kv_cache_bit_flip", {"share": 1.0, "pattern": "warp_stride"}),
    "kv_cache_zero share=0.25 tokens": ("kv_cache_zero", {}),
    "kv_cache_zero share=0.25 elements": ("kv_cache_zero", {"unit": "elements"}),
    "kv_cache_nonfinite share=1e-3": ("kv_cache_nonfinite", {"which": "both"}),
    "kv_cache_misread dtype": ("kv_cache_misread", {"what": "dtype"}),
    "kv_cache_misread stride": ("kv_cache_misread", {"what": "stride"}),
    "kv_cache_misread halves": ("kv_cache_misread", {"what": "halves"}),
    "kv_cache_swap": ("kv_cache_swap", {}),
}


@dataclass
class Part:
    """One layer's keys or values; ``writer`` takes the view and what shall stand there."""

    layer: int
    name: str
    tensor: torch.Tensor
    writer: Callable[[torch.Tensor, torch.Tensor], Any]

    def write(self, new: torch.Tensor) -> None:
        self.writer(self.tensor, new)


@dataclass
class Cache:
    """A request's cache whose whole selection is everything."""

    tokens: int
    writer: Callable[[torch.Tensor, torch.Tensor], Any] = field(default=lambda view, new: view.copy_(new))
    donors: list["Cache"] = field(default_factory=list)
    output_index: int = 1
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        shape = HEADS, self.tokens, DIM
        self.clean = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
        self.store = {(n, name): self.clean.clone() for n in range(LAYERS) for name in ("keys", "values")}

    def parts(self, **_: str) -> Iterator[Part]:
        return (Part(layer, name, tensor, self.writer) for (layer, name), tensor in self.store.items())

    def others(self) -> list["Cache"]:
        return self.donors

    def reset(self) -> None:
        """Clean values again, keys other than values and layers other than each other."""
        for n, tensor in enumerate(self.store.values()):
            tensor.copy_(self.clean.roll(n + 1, dims=1))


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 where a fault is slower than the plain addition beyond doubt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0)
    options = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _table(options.rounds, options.gib)
    finally:
        torch.set_num_threads(threads)


def _table(rounds: int, gib: float) -> int:
    cache = Cache(round(gib * (1 << 30) / TOKEN_BYTES))
    donor = Cache(cache.tokens)
    donor.reset()
    for tensor in donor.store.values():
        tensor.neg_()
    cache.donors = [donor]
    spent = _measured(cache, rounds)
    del cache, donor
    plain = spent.pop(PLAIN)
    print(
        f"\nkv cache: {gib:g} GiB bfloat16; process CPU s, one thread, median of {rounds} rounds; "
        f"torch {torch.__version__}"
    )
    print(f"\n{'':50}{'s':>8}{'of the plain':>14}  {'95 %':14}{'ms a hit':>9}")
    print(f"{PLAIN:50}{quantile(plain, 0.5):8.2f}{1:14.2f}")
    slower = []
    for name, times in spent.items():
        ratio, low, high = _ratio(times, plain)
        print(f"{name:50}{quantile(times, 0.5):8.2f}{ratio:14.2f}  [{low:.2f}, {high:.2f}]{_hit(name):11.1f}")
        slower += [name] if low > 1 else []
    print(f"\ngoal, no slower than the plain addition: {'NOT MET by ' + ', '.join(slower) if slower else 'met by all'}")
    return 1 if slower else 0


PLAIN = "add_(randn_like), nothing kept"


def _plain(cache: Cache) -> None:
    for tensor in cache.store.values():
        tensor.add_(torch.randn_like(tensor))


def _measured(cache: Cache, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round by contender; the first round, which fills caches, is thrown away."""
    spent: dict[str, list[float]] = {PLAIN: [], **{name: [] for name in FAULTS}}
    for round_ in range(rounds + 1):
        for name, times in spent.items():
            cache.reset()
            start = time.process_time()
            _plain(cache) if name == PLAIN else _strike(name, cache, round_)
            times += [time.process_time() - start] if round_ else []
    return spent


def _strike(name: str, cache: Cache, request: int) -> None:
    fault, params = FAULTS[name]
    made = get(fault)(cache, Rng.derive(1, f"bench-{request}", "0", fault), **params)
    if made is NOT_NOW:
        raise AssertionError(f"{name} let the occasion pass: there is nothing to time")


def _ratio(times: list[float], plain: list[float]) -> tuple[float, float, float]:
    """Ratio of the medians, and the middle 95 % of 2,000 bootstrap ratios over the rounds."""
    pairs, rng = np.array([times, plain]), np.random.default_rng(1)
    drawn = [pairs[:, rng.integers(0, len(times), len(times))] for _ in range(2000)]
    ratios = [float(np.median(sample[0]) / np.median(sample[1])) for sample in drawn]
    return float(np.median(pairs[0]) / np.median(pairs[1])), quantile(ratios, 0.025), quantile(ratios, 0.975)


def _hit(name: str) -> float:
    """Milliseconds of CPU for one request's strike and its undo: the median of five."""
    store, times = UndoStore(), []
    cache = Cache(HIT_TOKENS, writer=lambda view, new: store.write(view, new, lease=1))
    cache.donors = [Cache(HIT_TOKENS)]
    for request in range(6):
        cache.reset()
        start = time.process_time()
        _strike(name, cache, request)
        undone = store.restore(1)
        times.append(time.process_time() - start)
        if undone.skipped_elements or undone.reason or not undone.restored_elements:
            raise AssertionError(f"{name}: the undo is not whole: {undone}")
    return quantile(times[1:], 0.5) * 1e3


if __name__ == "__main__":
    raise SystemExit(main())
