"""The key-value cache of one vLLM request, block by block.

vLLM keeps one tensor a layer, logically [block, head, token, content] on every backend; a scheduler's block may be
several kernel blocks along axis 0. What a token's place inside a block is, only the backend's kernel knows: the CPU
kernel stores keys in an order that depends on the instruction set. So positions are rounded outward to whole kernel
blocks, and slots of a block that no token has filled yet are among what a part shows.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chaos_mm.agent.undo import as_integers
from chaos_mm.agent.vllm.book import Flight, RequestBook
from chaos_mm.core.engine import indices, spans
from chaos_mm.core.errors import InvalidParams

__all__ = ["HALVES", "Blocks", "RequestKv", "Writer"]

Writer = Callable[[int, Any, Any], None]
"""Called with a scheduler block, a live view of part of it, and what shall stand there."""


def _packed(block: Any) -> tuple[Any, Any]:
    """[head, token, 2 * size], keys of all tokens first: the CPU kernel's own reading of a block."""
    heads, tokens, content = block.shape
    return tuple(block.view(heads, 2 * tokens, content // 2).chunk(2, dim=1))


def _beside(block: Any) -> tuple[Any, Any]:
    """[head, token, 2 * size], each token's keys before its values."""
    return tuple(block.chunk(2, dim=-1))


HALVES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "CPU_ATTN": _packed,
    "FLASH_ATTN": _beside,
    "TRITON_ATTN": _beside,
}
"""How a backend of vLLM 0.32.0 tells keys from values in a block; a backend that is not here has no such words."""


class Blocks:
    """Every layer's tensor, each once, by scheduler block."""

    def __init__(self, tensors: Sequence[Any], num_blocks: int, block_size: int, backend: str) -> None:
        # Layers that share keys and values alias one tensor, and would be hurt twice.
        self.tensors = list({t.data_ptr(): t for t in tensors}.values())
        self.pieces = int(self.tensors[0].shape[0]) // num_blocks
        self.block_size, self.num_blocks = block_size, num_blocks
        self.heads = int(self.tensors[0].shape[1])
        self._halves = HALVES[backend]

    @property
    def layers(self) -> int:
        """Layers with keys and values of their own."""
        return len(self.tensors)

    @property
    def piece_size(self) -> int:
        """Tokens in a kernel block."""
        return self.block_size // self.pieces

    def piece(self, layer: int, block: int, index: int) -> Any:
        """One kernel block of a scheduler block: [head, token, content]."""
        return self.tensors[layer][block * self.pieces + index]

    def half(self, layer: int, block: int, index: int, name: str) -> Any:
        """Its ``keys`` or ``values``, axis 0 the head."""
        return self._halves(self.piece(layer, block, index))[name == "values"]

    def whole(self, block: int) -> Iterator[Any]:
        """What each layer keeps of a scheduler block: [piece, head, token, content]."""
        for tensor in self.tensors:
            yield tensor[block * self.pieces : (block + 1) * self.pieces]

    def checksum(self, block: int) -> str:
        """16 hex digits over all that is kept of it."""
        digest = hashlib.blake2b(digest_size=8)
        for tensor in self.whole(block):
            digest.update(as_integers(tensor.contiguous()).cpu().numpy().tobytes())
        return digest.hexdigest()


@dataclass
class Part:
    """One run of heads in one kernel block of one layer's keys or values (``KvPart``).

    ``place``: the kernel block's index among the request's own, so that two requests can be laid side by side.
    """

    layer: int
    name: str
    place: int
    tensor: Any
    _block: int
    _writer: Writer

    def write(self, new: Any) -> None:
        """Put ``new`` (same shape) there. Raises ValueError on another shape."""
        if tuple(new.shape) != tuple(self.tensor.shape):
            raise ValueError(f"a part of shape {tuple(self.tensor.shape)} cannot take {tuple(new.shape)}")
        self._writer(self._block, self.tensor, new)


class Family(Protocol):
    """Who else may be looked at: flights of other canaries, live ones first."""

    def __call__(self, flight: Flight) -> Sequence[Flight]:
        """Those that are not ``flight``."""


class RequestKv:
    """``KvCache`` of one request: its own blocks that hold tokens; what another live request holds too is left out."""

    def __init__(self, blocks: Blocks, book: RequestBook, flight: Flight, writer: Writer, family: Family) -> None:
        self._blocks, self._book, self._flight = blocks, book, flight
        self._writer, self._family = writer, family
        self.request = flight.id
        self.output_index = flight.output_index
        self.prompt_tokens, self.cached_tokens, self.tokens = (
            flight.prompt_tokens,
            flight.cached_tokens,
            flight.computed,
        )
        self.layers, self.heads = blocks.layers, blocks.heads

    def parts(
        self, *, layers: str = "all", heads: str = "all", positions: str = "all", which: str = "both"
    ) -> Iterator[Part]:
        """See ``KvCache.parts``; one part per layer, half, kernel block and run of neighbouring heads."""
        if which not in ("keys", "values", "both"):
            raise InvalidParams(f"which={which[:60]!r} is not allowed; it must be 'keys', 'values' or 'both'")
        names = ("keys", "values") if which == "both" else (which,)
        chosen = indices(layers, self.layers, "layers")
        runs = _runs(indices(heads, self.heads, "heads"))
        places = self._places(positions)
        return (
            self._part(layer, name, place, run)
            for layer in chosen
            for place in places
            for name in names
            for run in runs
        )

    def others(self) -> Sequence["RequestKv"]:
        """See ``KvCache.others``."""
        return [RequestKv(self._blocks, self._book, f, self._writer, self._family) for f in self._family(self._flight)]

    def _places(self, positions: str) -> list[int]:
        """Indices of the kernel blocks that hold a chosen position and are this request's alone."""
        size, per_block = self._blocks.piece_size, self._blocks.pieces
        if self.tokens == 0:
            return []
        wanted = {
            p for low, high in spans(positions, self.tokens, "positions") for p in range(low // size, -(-high // size))
        }
        shared, own = self._book.shared(self._flight), self._flight.blocks
        return [p for p in sorted(wanted) if p // per_block < len(own) and own[p // per_block] not in shared]

    def _part(self, layer: int, name: str, place: int, run: tuple[int, int]) -> Part:
        block, index = self._flight.blocks[place // self._blocks.pieces], place % self._blocks.pieces
        tensor = self._blocks.half(layer, block, index, name)[run[0] : run[1]]
        return Part(layer, name, place, tensor, block, self._writer)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as half-open ranges: a view cannot skip."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
