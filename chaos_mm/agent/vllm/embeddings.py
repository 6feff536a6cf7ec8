"""Embeddings where vLLM merges them into the prompt: per request, and the encoder cache stays clean.

At the merge the rows of all requests of the batch come in batch order, and the mask says which token takes one; so a
request's rows are counted from its span of tokens. What comes here is what left the projector, whatever made it: the
tower's own output and a Q-Former's are inside ``embed_multimodal``, whose result is cached and shared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.agent.measuring import Reference

__all__ = ["MOST_OUTPUTS", "PLACES", "MergedEmbedding", "Rows", "joined", "replaced", "rows_by_request", "watch_merge"]

PLACES = ("projector",)
"""Roles this seam has; the name of the model's connector module means the same."""
MOST_OUTPUTS = 256
"""Clean outputs folded into a reference: that many are steady, and a picture beyond them costs nothing more."""


@dataclass
class Rows:
    """One request's rows of one modality at the merge: which items of the list they are, joined into ``tensor``."""

    request: str
    modality: str
    items: tuple[int, ...]
    tensor: Any


@dataclass
class MergedEmbedding:
    """``Embedding`` at the merge: the projector's output for one request."""

    request: str
    module: str
    modality: str
    tensor: Any
    clean: Reference
    before: Any = None
    role: str = "projector"
    new: Any = field(default=None, repr=False)

    def at(self, place: str) -> bool:
        """Whether ``place`` is the projector, or the name of the module that is one."""
        return place in (*PLACES, self.module)

    def reference(self) -> Mapping[str, float]:
        """See ``Embedding.reference``; of the first 256 clean outputs of this modality since start."""
        if self.clean.count:
            return self.clean.to_json()
        wide = self.tensor.detach().double()
        return {"mean": float(wide.mean()), "std": float(wide.std(correction=0)), "count": 0.0}

    def previous(self) -> Any:
        """See ``Embedding.previous``."""
        return self.before

    def replace(self, new: Any) -> None:
        """Hand on ``new`` (rows, dim); vLLM 0.32.0 dies on another number of rows. Raises ValueError on another dim."""
        if new.dim() != 2 or new.shape[-1] != self.tensor.shape[-1]:
            raise ValueError(f"rows of {self.tensor.shape[-1]} cannot be replaced by a tensor {tuple(new.shape)}")
        self.new = new.to(self.tensor.dtype)


def rows_by_request(
    order: Sequence[str], scheduled: Mapping[str, int], items: Sequence[Any], mask: Any
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Which items belong to which request, by the rows that each request's span of the mask takes.

    Yields nothing for a request whose rows are not a whole number of items: where items overlap they have no owner.
    """
    start = item = 0
    for request in order:
        end = start + scheduled[request]
        rows, first, found = int(mask[start:end].sum()), item, 0
        while item < len(items) and found < rows:
            found += items[item].reshape(-1, items[item].shape[-1]).shape[0]
            item += 1
        if found != rows:
            return
        if rows:
            yield request, tuple(range(first, item))
        start = end


def joined(request: str, numbers: Sequence[int], items: Sequence[Any]) -> list[Rows]:
    """The items of a request by modality, each modality's rows under each other."""
    import torch

    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(getattr(items[number], "modality", "image"), []).append(number)
    flat = {i: items[i].reshape(-1, items[i].shape[-1]) for i in numbers}
    return [
        Rows(request, modality, tuple(group), torch.cat([flat[i] for i in group]) if group[1:] else flat[group[0]])
        for modality, group in groups.items()
    ]


def replaced(items: list[Any], rows: Rows, new: Any) -> None:
    """Put ``new`` in place of the rows' items, in ``items`` itself; the tensors there before stay as they are.

    Each item keeps its share of the rows; what is too many goes to the last one, what is missing is missing there.
    """
    position = 0
    for number in rows.items:
        item = items[number]
        last = number == rows.items[-1]
        size = item.reshape(-1, item.shape[-1]).shape[0]
        piece = new[position:] if last else new[position : position + size]
        position += size
        piece = piece.clone()
        if (modality := getattr(item, "modality", None)) is not None:
            piece.modality = modality
        items[number] = piece


def watch_merge(model: Any, see: Callable[[list[Any], Any], list[Any]]) -> Callable[[], None]:
    """Put ``see(items, mask) -> items`` before the model's merge; returns what takes it away again.

    Only this instance is changed, so that another model of the process is left alone.
    """
    real = model.embed_input_ids

    def embed_input_ids(
        input_ids: Any, multimodal_embeddings: Any = None, *, is_multimodal: Any = None, **rest: Any
    ) -> Any:
        if multimodal_embeddings is not None and len(multimodal_embeddings) and is_multimodal is not None:
            multimodal_embeddings = see(list(multimodal_embeddings), is_multimodal)
        return real(input_ids, multimodal_embeddings, is_multimodal=is_multimodal, **rest)

    model.__dict__["embed_input_ids"] = embed_input_ids
    return lambda: model.__dict__.pop("embed_input_ids", None)
