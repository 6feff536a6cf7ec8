"""Where a thread stands in its generation: which batch, which output token, whose rows, which cache."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.core import serving
from chaos_mm.core.blast_radius import RequestInfo

__all__ = ["Row", "Step", "Steps", "find_cache", "given_tokens"]


@dataclass(frozen=True)
class Row:
    """A row of the decoder's batch whose request still waits for tokens."""

    number: int
    id: str
    info: RequestInfo


class Step:
    """One thread's generation. ``index``: of the output token that the coming step computes, from 0."""

    def __init__(self) -> None:
        self.batch: serving.Batch | None = None
        self.index = 0
        self.size = 0
        self.starts: list[int] | None = None
        self.cache: Any = None
        self.path = ""
        self.lost = False

    def begin(self, batch: serving.Batch) -> None:
        """A prompt: the first step of a generation."""
        self.batch, self.index, self.size, self.starts, self.cache = batch, 0, 0, None, None
        self.lost = False

    def lose(self, batch: serving.Batch | None) -> None:
        """Something of ours failed: where that generation stands is not known any more, and its rows are nobody's."""
        self.batch, self.lost, self.cache = batch, True, None

    def rows(self) -> Iterator[Row]:
        """The rows that somebody waits for; none where the batch's size is not what was said (beam search)."""
        batch = self.batch
        if batch is None or self.lost or self.size != len(batch.ids):
            return
        for number, request in enumerate(batch.ids):
            if number not in batch.finished:
                yield Row(number, request, info_of(batch, number))

    def start(self, row: int) -> int:
        """Where the row's first real token stands: what is before is padding."""
        return self.starts[row] if self.starts is not None and row < len(self.starts) else 0


class Steps(threading.local):
    """The generation of each thread."""

    def __init__(self) -> None:
        self.step = Step()


def info_of(batch: serving.Batch, row: int, modality: str = "") -> RequestInfo:
    """What a selector may know of a row's request."""
    said = batch.modalities[row] if row < len(batch.modalities) else frozenset()
    return RequestInfo(batch.ids[row], "", modalities=said | {modality} if modality else said)


def given_tokens(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The tensor that a decoder is called with: token ids or their embeddings, batch and length first; or None."""
    given = kwargs.get("input_ids")
    if given is None:
        given = kwargs.get("inputs_embeds")
    return given if given is not None else (args[0] if args else None)


def find_cache(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The key-value cache among a module's arguments, whatever this release calls it; an encoder-decoder's own part."""
    from transformers.cache_utils import Cache

    for value in (*kwargs.values(), *args):
        if isinstance(value, Cache):
            return getattr(value, "self_attention_cache", value)
    return None


def row_starts(mask: Any) -> list[int] | None:
    """Index of each row's first real token in a mask (batch, length); None where there is no such mask."""
    if mask is None or not hasattr(mask, "dim") or mask.dim() != 2:
        return None
    starts: list[int] = (mask != 0).int().argmax(1).tolist()
    return starts
