"""A request's keys and values in a library cache between two steps, and those of canaries that have finished.

The library's dynamic cache makes new tensors at every step, so a place is known by (layer, name, row, heads,
positions) and looked up again whenever it is needed; a tensor kept from an earlier step is dead.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.core.engine import KvCache, KvPart, indices, spans
from chaos_mm.core.errors import InvalidParams

__all__ = ["Copied", "FinishedCaches", "KvView", "unsupported"]
_NAMES: Final = {"keys": ("keys",), "values": ("values",), "both": ("keys", "values")}
_FINISHED: Final = 4
"""Caches of finished canaries kept at once, while a fault is live that copies from one to another."""


def unsupported(cache: Any) -> str:
    """Why this cache's tensors cannot be addressed by position, by the name of what it is made of; empty when they can.

    Sliding windows and static or quantised storage move or pack what the plain dynamic layer leaves in order.
    """
    if cache is None:
        return "it generates without a key-value cache"
    kinds = sorted({type(layer).__name__ for layer in getattr(cache, "layers", ())})
    odd = [kind for kind in kinds if kind != "DynamicLayer"]
    return f"its {type(cache).__name__} holds {', '.join(odd)}; only DynamicLayer is supported" if odd else ""


@dataclass(frozen=True)
class _Place:
    """Where a part stands; ``start`` and ``stop`` are positions of the cache, padding included."""

    layer: int
    name: str
    row: int
    heads: tuple[int, int]
    start: int
    stop: int

    def view(self, cache: Any) -> Any:
        """(heads, tokens, head_dim), or None where the cache has lost it."""
        tensor = getattr(cache.layers[self.layer], self.name, None) if self.layer < len(cache.layers) else None
        if tensor is None or tensor.dim() != 4 or self.row >= tensor.shape[0] or self.stop > tensor.shape[2]:
            return None
        # A server that computes gradients along (nobody told it not to) has caches that are part of their graph.
        return tensor.detach()[self.row, slice(*self.heads), self.start : self.stop, :]


class _Part:
    """A ``KvPart`` of a live cache."""

    def __init__(self, cache: Any, place: _Place, armed: Armed) -> None:
        self.layer, self.name, self.tensor = place.layer, place.name, place.view(cache)
        self._place, self._armed, self._cache = place, armed, weakref.ref(cache)

    def write(self, new: Any) -> None:
        """Put it there, kept for the undo; the cache may be another tensor by then, or gone with its request."""

        def locate() -> Any:
            cache = self._cache()
            return None if cache is None else self._place.view(cache)

        self._armed.write(self.tensor, new, locate=locate)


@dataclass
class _Kept:
    """A part of such a copy."""

    layer: int
    name: str
    tensor: Any

    def write(self, new: Any) -> None:
        """It is another request's. Raises InvalidParams."""
        raise InvalidParams("another request's cache is only read")


class KvView:
    """``KvCache`` of one row. ``others``: asked when a fault wants another canary's."""

    cached_tokens = 0  # a cache of this library lives and dies with its request

    def __init__(
        self,
        cache: Any,
        row: int,
        request: str,
        output_index: int,
        start: int,
        armed: Armed,
        others: Callable[[], Sequence[KvCache]] = tuple,
    ) -> None:
        first = cache.layers[0].keys
        self.request, self.output_index = request, output_index
        self.tokens = int(first.shape[2]) - start
        self.prompt_tokens = max(0, self.tokens - max(0, output_index - 1))
        self.layers, self.heads = len(cache.layers), int(first.shape[1])
        self._cache, self._row, self._start, self._armed, self._others = cache, row, start, armed, others

    def parts(
        self, *, layers: str = "all", heads: str = "all", positions: str = "all", which: str = "both"
    ) -> Iterator[KvPart]:
        """Live views (heads, tokens, head_dim) of what these words select; position 0 is the first real token."""
        for place in self._places(layers, heads, positions, which):
            yield _Part(self._cache, place, self._armed)

    def others(self) -> Sequence[KvCache]:
        """Other canaries of the batch, then finished ones."""
        return self._others()

    def _places(self, layers: str, heads: str, positions: str, which: str) -> Iterator[_Place]:
        if which not in _NAMES:
            raise InvalidParams(f"which={which[:60]!r} is not allowed; it must be one of 'keys', 'values', 'both'")
        ranges = _merged(spans(heads, self.heads, "heads")), _merged(spans(positions, self.tokens, "positions"))
        for layer in indices(layers, self.layers, "layers"):
            for name in _NAMES[which]:
                for group in ranges[0]:
                    for low, high in ranges[1]:
                        yield _Place(layer, name, self._row, group, self._start + low, self._start + high)


def _merged(found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges ascending and apart, so that no element is written twice."""
    made: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if made and low <= made[-1][1]:
            made[-1] = (made[-1][0], max(high, made[-1][1]))
        elif high > low:
            made.append((low, high))
    return made


class Copied:
    """``KvCache`` of a canary as it was at one moment: copies (heads, tokens, head_dim) by layer, read only."""

    cached_tokens = 0

    def __init__(self, cache: Any, row: int, start: int, request: str, output_index: int) -> None:
        keys, values = ([getattr(part, n)[row, :, start:, :].clone() for part in cache.layers] for n in _NAMES["both"])
        self.request, self.output_index = request, output_index
        self.layers, self.heads, self.tokens = len(keys), int(keys[0].shape[0]), int(keys[0].shape[1])
        self.prompt_tokens = max(0, self.tokens - output_index)
        self._tensors = {"keys": keys, "values": values}

    def parts(
        self, *, layers: str = "all", heads: str = "all", positions: str = "all", which: str = "both"
    ) -> Iterator[KvPart]:
        """As of a live one; they refuse to be written."""
        if which not in _NAMES:
            raise InvalidParams(f"which={which[:60]!r} is not allowed; it must be one of 'keys', 'values', 'both'")
        for layer in indices(layers, self.layers, "layers"):
            for name in _NAMES[which]:
                for group in _merged(spans(heads, self.heads, "heads")):
                    for low, high in _merged(spans(positions, self.tokens, "positions")):
                        yield _Kept(layer, name, self._tensors[name][layer][slice(*group), low:high, :])

    def others(self) -> Sequence[KvCache]:
        """None: it is another's other."""
        return ()


class FinishedCaches:
    """What finished canaries' caches held, the last ``_FINISHED`` of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Copied] = OrderedDict()

    def keep(self, cache: Any, row: int, start: int, request: str, output_index: int) -> None:
        """Copy a row of a cache."""
        self._kept[request] = Copied(cache, row, start, request, output_index)
        self._kept.move_to_end(request)
        while len(self._kept) > _FINISHED:
            self._kept.popitem(last=False)

    def but(self, request: str) -> list[KvCache]:
        """Those of everybody else, the newest first."""
        return [view for known, view in reversed(tuple(self._kept.items())) if known != request]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
