"""What an engine hands to a fault, small and real: tensors, an attention call that computes, a block pool that counts.

No stand-in decides an outcome here: keys and values are torch tensors of every format, attention is torch's own, blocks
are taken from and given back to a real free list. Only the clock of ``sleep`` is virtual.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from chaos_mm.core.engine import indices, spans

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor of any format."""
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())


def values(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal values, mean 0 and deviation 1; int8 as a quantised cache has them, at 4/127 a step."""
    drawn = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))
    return (drawn * 127 / 4).round().clamp(-128, 127).to(dtype) if dtype is torch.int8 else drawn.to(dtype)


@dataclass
class SampleKvPart:
    """A view of one layer's keys or values in a cache, and the list that its writes go to."""

    layer: int
    name: str
    tensor: torch.Tensor
    undo: list[tuple["SampleKvPart", torch.Tensor, torch.Tensor]]

    def write(self, new: torch.Tensor) -> None:
        assert new.shape == self.tensor.shape
        saved = self.tensor.clone()
        self.tensor.copy_(new)
        self.undo.append((self, saved, self.tensor.clone()))


@dataclass
class SampleKvCache:
    """One request's cache as a dict of (heads, tokens, head_dim) tensors, ``{(layer, "keys"): ...}``."""

    store: dict[tuple[int, str], torch.Tensor]
    request: str = "r-1"
    output_index: int = 5
    prompt_tokens: int = 12
    cached_tokens: int = 0
    donors: list["SampleKvCache"] = field(default_factory=list)
    undo: list[tuple[SampleKvPart, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        dtype: torch.dtype = torch.float32,
        *,
        layers: int = 3,
        heads: int = 4,
        tokens: int = 17,
        dim: int = 8,
        seed: int = 1,
        **fields: Any,
    ) -> "SampleKvCache":
        """A cache of normal values, another one for each seed."""
        places = [(layer, name) for layer in range(layers) for name in ("keys", "values")]
        store = {place: values((heads, tokens, dim), dtype, 1000 * seed + n) for n, place in enumerate(places)}
        return cls(store, **fields)

    @property
    def tokens(self) -> int:
        return next(iter(self.store.values())).shape[1]

    @property
    def heads(self) -> int:
        return next(iter(self.store.values())).shape[0]

    @property
    def layers(self) -> int:
        return len({layer for layer, _ in self.store})

    def parts(
        self, *, layers: str = "all", heads: str = "all", positions: str = "all", which: str = "both"
    ) -> Iterator[SampleKvPart]:
        """One part for each layer, name, run of heads and run of positions, all live views."""
        for layer in indices(layers, self.layers, "layers"):
            for name in [n for n in ("keys", "values") if which in (n, "both") and (layer, n) in self.store]:
                for head, last in spans(heads, self.heads, "heads"):
                    for start, stop in spans(positions, self.tokens, "positions"):
                        yield SampleKvPart(layer, name, self.store[layer, name][head:last, start:stop], self.undo)

    def others(self) -> Sequence["SampleKvCache"]:
        return self.donors

    def bytes(self) -> bytes:
        """Everything that stands in it."""
        return b"".join(raw(tensor) for tensor in self.store.values())

    def restore(self) -> None:
        """Undo every write, the last one first; fails where something was changed behind ``write``."""
        for part, saved, written in reversed(self.undo):
            assert raw(part.tensor) == raw(written), "a part holds what nobody wrote through it"
            part.tensor.copy_(saved)
        self.undo.clear()


@dataclass
class SampleAttentionCall:
    """One layer's attention over real queries, keys and values, computed by torch when ``launch`` is called."""

    layer: int = 1
    layers: int = 3
    heads: int = 4
    head_dim: int = 8
    output_index: int = 5
    backend: str = "sdpa"
    requests: Sequence[str] = ("r-1",)
    batch_wide: bool = True
    survives_raise: bool = True
    state: dict[str, Any] = field(default_factory=dict)
    lease_ends: float = float("inf")
    now: float = 0.0
    change: Callable[[torch.Tensor], Any] | None = None
    tokens: int = 6

    def sleep(self, seconds: float) -> float:
        """On a virtual clock, at most until the lease ends."""
        slept = max(0.0, min(seconds, self.lease_ends - self.now))
        self.now += slept
        return slept

    def edit_output(self, change: Callable[[torch.Tensor], Any]) -> None:
        assert self.change is None, "one edit a call"
        self.change = change

    def launch(self) -> torch.Tensor:
        """(tokens, heads, head_dim), after what was asked for through ``edit_output``."""
        q, k, v = (values((self.heads, self.tokens, self.head_dim), torch.float32, 7 + n) for n in range(3))
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).contiguous()
        if self.change is None:
            return output
        changed = self.change(output)
        return output if changed is None else changed


@dataclass
class SampleBlockPool:
    """A free list of block numbers; ``step`` is a step of the engine, so long after a hold has begun."""

    total: int = 64
    taken: int = 24
    peak: int = 0

    def __post_init__(self) -> None:
        self.list = list(range(self.taken, self.total))
        self.blocks: list[int] = []
        self.ramp = (0, 0, 1.0)

    @property
    def free(self) -> int:
        return len(self.list)

    @property
    def held(self) -> int:
        return len(self.blocks)

    def hold(self, blocks: int, *, floor: int = 0, over_seconds: float = 0.0) -> int:
        if over_seconds:
            self.ramp = (blocks, floor, over_seconds)
        return self._take(min(blocks, 1) if over_seconds else blocks, floor)

    def step(self, seconds: float) -> None:
        blocks, floor, over = self.ramp
        self._take(int(blocks * min(1.0, seconds / over)) - self.held, floor)

    def figures(self) -> dict[str, float]:
        counts = {"held_blocks": float(self.held), "free_blocks": float(self.free)}
        return {**counts, "held_share": self.held / self.total}

    def release(self) -> int:
        given = len(self.blocks)
        self.list += reversed(self.blocks)
        self.blocks.clear()
        self.ramp = (0, 0, 1.0)
        return given

    def _take(self, blocks: int, floor: int) -> int:
        taken = [self.list.pop() for _ in range(min(blocks, len(self.list) - floor))]
        self.blocks += taken
        self.peak = max(self.peak, self.held)
        return len(taken)


@dataclass
class SampleKvLoad:
    """A load of prompt blocks into a cache: copies them, unless it was told to fail."""

    source: SampleKvCache
    target: SampleKvCache
    request: str = "r-1"
    declared: bool | None = None
    delay_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.source.tokens

    def fail(self, *, declared: bool, delay_seconds: float = 0.0) -> None:
        self.declared, self.delay_seconds = declared, delay_seconds

    def run(self) -> list[str]:
        """Load, and the requests that the engine is told have failed."""
        if self.declared is None:
            for place, tensor in self.source.store.items():
                self.target.store[place].copy_(tensor)
        return [self.request] if self.declared else []
