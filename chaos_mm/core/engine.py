"""What a seam inside an engine hands to a fault, and how a fault says where it strikes.

Adapters implement these protocols; fault files use them and nothing of any engine. Tensors are torch's (``Any`` here:
the vocabulary imports the standard library only). A fault answers ``NOT_NOW`` where it lets this occasion pass, the
value or an ``Outcome`` of it where it struck, and ``Raise(error)`` where an exception shall leave the seam.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.params import Param

__all__ = [
    "NOT_NOW",
    "AfterTokens",
    "AttentionCall",
    "BlockPool",
    "Embedding",
    "EncoderCache",
    "EngineMemory",
    "Gradient",
    "Heads",
    "KvCache",
    "KvLoad",
    "KvPart",
    "Layers",
    "MediaKeys",
    "Positions",
    "Raise",
    "Role",
    "Scheduler",
    "Which",
    "indices",
    "spans",
]

NOT_NOW: Final = object()
"""A fault's answer on an occasion that it lets pass: nothing was changed and nothing counts."""

Layers = Annotated[str, Param("decoder layers: 'all', or such as '0,2-5,-1' (negative from the end)")]
Heads = Annotated[str, Param("key-value heads (attention faults: query heads): 'all', or such as '0,2-3'")]
Positions = Annotated[
    str, Param("token positions: 'all', 'first:N', 'last:N', or such as '0-15,40' (whole blocks where an engine packs)")
]
Which = Annotated[str, Param("'keys', 'values' or 'both'")]
AfterTokens = Annotated[
    int,
    Param(
        "strike before this output token is computed; 0: at the first step, on what the prefix cache brought",
        ge=0,
        le=100_000,
        unit="tokens",
    ),
]
Role = Annotated[
    str, Param("'vision', 'audio', 'projector' or 'qformer' (its output), or the name of a module of the model")
]


@dataclass(frozen=True)
class Raise:
    """A fault's answer: this exception shall leave the seam, into the engine."""

    error: Exception
    achieved: Mapping[str, float] = field(default_factory=dict)


def indices(text: str, count: int, what: str) -> tuple[int, ...]:
    """The indices below ``count`` that ``text`` names, ascending: 'all', or single ones and ranges, '0,2-5,-1'.

    Raises InvalidParams naming ``what``, the text and what is allowed.
    """
    if text.strip() == "all":
        return tuple(range(count))
    return tuple(sorted({i for low, high in spans(text, count, what) for i in range(low, high)}))


def spans(text: str, count: int, what: str) -> tuple[tuple[int, int], ...]:
    """As ``indices``, as half-open ranges, with 'first:N' and 'last:N' too (clipped to ``count``)."""
    word, _, number = text.strip().partition(":")
    if word == "all" and not number:
        return ((0, count),)
    if word in ("first", "last") and number.isascii() and number.isdigit():
        n = min(int(number), count)
        return ((0, n),) if word == "first" else ((count - n, count),)
    return tuple(_span(part.strip(), count, what, text) for part in text.split(","))


def _span(part: str, count: int, what: str, text: str) -> tuple[int, int]:
    low, dash, high = part.partition("-") if not part.startswith("-") else (part, "", "")
    try:
        first = int(low)
        last = int(high) if dash else first
    except ValueError:
        raise InvalidParams(f"{what}={text[:60]!r} is not allowed; it must be 'all' or such as '0,2-5'") from None
    first, last = (i + count if i < 0 else i for i in (first, last))
    if not 0 <= first <= last < count:
        raise InvalidParams(f"{what}={text[:60]!r} is outside this engine's 0-{count - 1}")
    return first, last + 1


class KvPart(Protocol):
    """A piece of one layer's keys or values: ``tensor`` is a live view whose axis 0 is the head, the last the content.

    ``name``: keys or values. ``tensor`` may be read freely and changed through ``write`` alone.
    """

    layer: int
    name: str
    tensor: Any

    def write(self, new: Any) -> None:
        """Put ``new`` (same shape, cast to its dtype) there; what stood there is kept for the undo.

        Nothing holds on to ``new``: once this returns, its memory may be used again.
        """


class KvCache(Protocol):
    """The key-value cache of one request between two steps."""

    request: str
    output_index: int
    """Index of the output token that the coming step computes; 0 while the prompt is not yet computed."""
    prompt_tokens: int
    cached_tokens: int
    """Tokens of the prompt that came from the prefix cache."""
    tokens: int
    layers: int
    heads: int

    def parts(
        self, *, layers: str = "all", heads: str = "all", positions: str = "all", which: str = "both"
    ) -> Iterator[KvPart]:
        """What these words select of this request's own blocks; blocks that another live request shares are left out.

        Raises InvalidParams on a word that this engine does not have.
        """

    def others(self) -> Sequence["KvCache"]:
        """Caches of other canaries, live ones first, then finished ones whose blocks still stand."""


class KvLoad(Protocol):
    """A load of one request's prompt blocks from a KV connector."""

    request: str
    tokens: int

    def fail(self, *, declared: bool, delay_seconds: float = 0.0) -> None:
        """Load nothing; ``declared``: say so to the engine, which then fails or recomputes the request."""


class AttentionCall(Protocol):
    """One call of one attention layer of the decoder, before it is launched."""

    layer: int
    layers: int
    heads: int
    head_dim: int
    output_index: int
    backend: str
    """The implementation that is really called, such as ``sdpa`` or ``CPU_ATTN``."""
    requests: Sequence[str]
    """The selected requests of the batch; others may be in it, and ``batch_wide`` says whether delays hit them."""
    batch_wide: bool
    survives_raise: bool
    state: dict[str, Any]
    """Kept for the whole lease."""

    def sleep(self, seconds: float) -> float:
        """Hold this call up, at most until the lease ends; how long it truly was."""

    def edit_output(self, change: Callable[[Any], Any]) -> None:
        """After the call, hand its output for the selected requests, (tokens, heads, head_dim), to ``change``.

        ``change`` alters it in place (returns None) or returns another of the same shape.
        """


class Embedding(Protocol):
    """What an encoder, projector or Q-Former gave out for one request: ``tensor`` (rows, dim)."""

    request: str
    role: str
    module: str
    modality: str
    """image or audio."""
    tensor: Any

    def at(self, place: str) -> bool:
        """Whether ``place`` (a ``Role``) means this output. An unknown place was refused when the lease was put."""

    def reference(self) -> Mapping[str, float]:
        """Of clean outputs of the same place since start: ``mean``, ``std`` (of elements), ``count`` (of outputs).

        ``count`` 0: none was seen, and ``std`` is that of this very output.
        """

    def previous(self) -> Any:
        """The clean output of the canary before this one at the same place (rows, dim), or None."""

    def replace(self, new: Any) -> None:
        """Hand on ``new`` (rows, dim) instead; another number of rows than ``tensor`` has is a mismatch."""


class Gradient(Protocol):
    """A gradient flowing back into a module's output, and from there into its weights and what is before it."""

    role: str
    module: str
    tensor: Any
    step: int
    """Optimiser steps since the lease began, from 0."""

    def at(self, place: str) -> bool:
        """As ``Embedding.at``."""

    def replace(self, new: Any) -> None:
        """Let ``new`` (same shape) flow on instead."""


class MediaKeys(Protocol):
    """The hash by which the engine knows media (and prefixes that hold them) again."""

    def mask(self, bits: int, salt: bytes) -> None:
        """Keep ``bits`` bits of the selected canaries' keys; ``salt`` keeps them apart from every user's key."""

    def restore(self) -> Mapping[str, float]:
        """Whole keys again, and what was stored under masked ones flushed. Raises ChaosMMError where unproven."""


class EncoderCache(Protocol):
    """Kept encoder outputs."""

    entries: int
    budget: int
    """Capacity; tokens in vLLM, entries elsewhere."""

    def evict(self, share: float) -> int:
        """Drop that share of what nobody is using; how many entries."""

    def set_budget(self, budget: int) -> None:
        """Shrink or restore the capacity."""


class BlockPool(Protocol):
    """Key-value blocks."""

    total: int
    free: int
    held: int
    peak: int
    """The most that were held at once."""

    def hold(self, blocks: int, *, floor: int = 0, over_seconds: float = 0.0) -> int:
        """Take free blocks away from the engine, but never the last ``floor``; how many were taken by now.

        ``over_seconds``: the first now and the others evenly over so long, between two steps, until ``release``; each
        time ``figures`` are counted anew for the lease. 0: all at once.
        """

    def figures(self) -> Mapping[str, float]:
        """``held_blocks``, ``free_blocks`` left, and ``held_share`` of the whole pool, now."""

    def release(self) -> int:
        """Give every held block back and take no more; how many."""


class Scheduler(Protocol):
    """Who runs."""

    def preempt_after(self, tokens: int, times: int) -> None:
        """Preempt each selected request when it has generated ``tokens`` tokens, ``times`` times over."""

    def stop_preempting(self) -> None:
        """From now on nobody is."""


class EngineMemory(Protocol):
    """Allocations of the engine's process; ``sleep`` returns early and False once the lease has ended."""

    device: str

    def used(self) -> int:
        """Bytes the process holds on the device (``cpu``: resident)."""

    def set_ceiling(self, headroom_bytes: int) -> int:
        """Let no more than this above what is used be allocated; the ceiling in bytes."""

    def lift_ceiling(self) -> None:
        """As before."""

    def fail_at(self, site: str, times: int) -> None:
        """Let the next ``times`` allocations at attention, kv_growth or encoder fail with the engine's error."""

    def stop_failing(self) -> None:
        """From now on none does."""

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
