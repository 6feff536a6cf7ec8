"""What the faults on a request's key-value cache share: when one is due, and how parts are changed and counted.

Tensors are touched through their own methods alone: the vocabulary imports the standard library only.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from chaos_mm.core.engine import NOT_NOW, KvCache, KvPart
from chaos_mm.core.fault import Outcome

__all__ = ["Change", "due", "labelled", "rewrite", "struck"]

Change = Callable[[KvPart, str], tuple[Any, Mapping[str, float]] | None]
"""What one part shall become, and its figures; None where it stays. The text is the label of the part's own draws."""


def due(view: KvCache, after_tokens: int) -> bool:
    """Whether the coming step is one to strike before.

    From 1 on: the first step at or beyond that output token, so a step that was missed is made up for. 0: before the
    first output token, where the prefix cache brought something; a request without a hit is let pass, so that a fault
    on hits is not mistaken for one on what the request computed itself.
    """
    if after_tokens == 0:
        return view.output_index == 0 and view.cached_tokens > 0
    return view.output_index >= after_tokens


def labelled(parts: Iterable[KvPart]) -> Iterator[tuple[str, KvPart]]:
    """Each part with a text that is its own whatever else is selected: layer, name, and which of that layer's."""
    seen: Counter[tuple[int, str]] = Counter()
    for part in parts:
        place = part.layer, part.name
        yield f"{part.layer} {part.name} {seen[place]}", part
        seen[place] += 1


def rewrite(view: KvCache, after_tokens: int, change: Change, **place: str) -> Any:
    """Put every selected part through ``change``; NOT_NOW where it is too early or nothing was to change.

    ``place``: the words of ``KvCache.parts``, all read before anything is written. Of the figures of each part whole
    numbers are added up and fractions averaged; ``parts`` and ``elements`` (of those parts) stand beside them. One part
    is made and written after another, so that no more than one is held twice; whoever calls puts back what was written
    before a later part was refused.
    """
    if not due(view, after_tokens):
        return NOT_NOW
    parts = [(label, part) for label, part in labelled(view.parts(**place)) if part.tensor.numel()]
    made = ((part, change(part, label)) for label, part in parts)
    return struck(view, ((part, *new) for part, new in made if new is not None))


def struck(view: KvCache, changes: Iterable[tuple[KvPart, Any, Mapping[str, float]]]) -> Any:
    """Write each change and put the figures together; NOT_NOW where there is none."""
    gathered: dict[str, list[float]] = {}
    count = 0
    for part, new, figures in changes:
        part.write(new)
        count += 1
        for name, figure in {"elements": part.tensor.numel(), **figures}.items():
            gathered.setdefault(name, []).append(figure)
    if not count:
        return NOT_NOW
    return Outcome(view, {"parts": float(count)} | {name: _joined(each) for name, each in gathered.items()})


def _joined(figures: list[float]) -> float:
    counts = all(isinstance(figure, int) for figure in figures)
    return float(sum(figures) if counts else sum(figures) / len(figures))
