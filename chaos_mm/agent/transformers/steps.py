"""Where a thread stands in its generation: which batch, which output token, whose rows, which cache."""

import threading
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.core import serving
from chaos_mm.core.blast_radius import RequestInfo

__all__ = ["Row", "Step", "Steps", "find_cache", "given_tokens", "info_of", "row_starts"]


@dataclass(frozen=True)
class Row:
    """A row of the decoder's batch whose request still waits for tokens."""

    number: int
    id: str
    info: RequestInfo


class Step:
    """One batch's generation in one thread. ``index``: of the output token that the coming step computes, from 0."""

    def __init__(self, batch: serving.Batch | None = None, before: "Step | None" = None) -> None:
        """``before``: what the thread goes on with after this batch."""
        self.batch, self.before = batch, before
        self.begin()
        self.index = -1

    def begin(self) -> None:
        """A prompt: the first step of a generation."""
        self.index, self.size = 0, 0
        self.starts: list[int] | None = None
        self.cache: Any = None
        self.lost = False

    def lose(self) -> None:
        """Something of ours failed: where the generation stands is not known any more, and its rows are nobody's."""
        self.lost, self.cache = True, None

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
    """The generation that each thread is at; one without a batch where it is at none that was told of."""

    def __init__(self) -> None:
        self.step = Step()

    def enter(self, batch: serving.Batch, here: Container[serving.Batch]) -> None:
        """This thread begins a batch. ``here``: batches that have not been left; another thread may have left ours."""
        before = next((step for step in self._chain() if step.batch is None or step.batch in here), None)
        self.step = Step(batch, before)

    def leave(self, batch: serving.Batch) -> None:
        """It goes on with what it was at before; where that batch is left out of order, with what it is at now."""
        inner: Step | None = None
        for step in self._chain():
            if step.batch is batch:
                before = step.before or Step()
                if inner is None:
                    self.step = before
                else:
                    inner.before = before
                return
            inner = step

    def of(self, batch: serving.Batch) -> Step | None:
        """Where that batch stands in this thread."""
        return next((step for step in self._chain() if step.batch is batch), None)

    def waits_for(self, request: str) -> bool:
        """Whether a batch that this thread is at holds the request."""
        return any(step.batch is not None and request in step.batch.ids for step in self._chain())

    def _chain(self) -> Iterator[Step]:
        step: Step | None = self.step
        while step is not None:
            yield step
            step = step.before


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
