"""What is measured of an engine: a bounded sample of canaries against clean references, off unless asked for.

An adapter makes one ``Measures`` per engine process, hands over what canaries bring past its seams, and answers
``facts()`` under ``measures`` of ``GET /agent``. Users' requests are never handed over. Only figures are kept, and of
embeddings the mean row; no picture, text or token.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Final, NamedTuple

from chaos_mm.agent import measures
from chaos_mm.core.errors import InvalidParams

__all__ = ["ENVIRONMENT", "KINDS", "Measures", "Reference"]
ENVIRONMENT: Final = "CHAOS_MM_AGENT_MEASURES"
"""Names of KINDS, separated by commas; unset or empty: nothing is measured."""
KINDS: Final = ("attention", "embedding")
_WINDOW_SECONDS = 10.0
_SAMPLES = 64  # newest observations kept of each kind
_MEDIA = 32  # clean media kept by place, for the flip share


class Reference:
    """Clean outputs of one place: running sums in float64, so that order and number of outputs do not matter.

    ``count`` outputs; ``mean`` and ``std`` of all their elements; ``row`` (dim), the mean row; NaN and None at first.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows = 0
        self._sum: Any = None
        self._squares = 0.0

    def add(self, tensor: Any) -> None:
        """Fold one clean output (rows, dim) in. One with values that are no numbers, or of another width, is not."""
        clean = tensor.detach().double().cpu()
        total = clean.sum(0)
        if clean.shape[0] == 0 or not bool(total.isfinite().all()):
            return
        if self._sum is None:
            self._sum = total
        elif self._sum.shape != total.shape:
            return
        else:
            self._sum = self._sum + total
        self.count, self._rows = self.count + 1, self._rows + clean.shape[0]
        self._squares += float(clean.square().sum())

    @property
    def row(self) -> Any:
        """The mean row (dim), float64, or None."""
        return None if self._sum is None else self._sum / self._rows

    @property
    def mean(self) -> float:
        """Of all elements."""
        return float("nan") if self._sum is None else float(self.row.mean())

    @property
    def std(self) -> float:
        """Of all elements (population)."""
        if self._sum is None:
            return float("nan")
        variance = self._squares / (self._rows * self._sum.numel()) - self.mean**2
        return sqrt(max(0.0, variance))

    def to_json(self) -> Mapping[str, float]:
        """As ``Embedding.reference`` answers; mean and std 0 while count is."""
        return {"mean": self.mean, "std": self.std, "count": float(self.count)} if self.count else dict(_NOTHING)


_NOTHING: Final = {"mean": 0.0, "std": 0.0, "count": 0.0}


class _Seen(NamedTuple):
    at: float
    pooled: Any
    medium: str
    nonfinite: int
    under: tuple[bool, Hashable]


@dataclass
class _Place:
    reference: Reference = field(default_factory=Reference)
    media: dict[str, Any] = field(default_factory=dict)
    seen: deque["_Seen"] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


class Measures:
    """Observations of the last seconds, and the clean references they are held against. Safe from several threads.

    ``kinds``: what is measured, of KINDS; nothing unless given. ``window_seconds``: how old an observation may be to
    count. ``clock``: monotonic seconds. ``skip_sink`` as in ``measures.attention``.
    """

    def __init__(
        self,
        kinds: frozenset[str] = frozenset(),
        *,
        window_seconds: float = _WINDOW_SECONDS,
        skip_sink: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        unknown = sorted(kinds - set(KINDS))
        if unknown:
            raise InvalidParams(f"{unknown[0]!r} cannot be measured; there are: {', '.join(KINDS)}")
        self.kinds, self._skip_sink = kinds, skip_sink
        self._window, self._clock = window_seconds, clock
        self._lock = threading.Lock()
        self._attention: deque[tuple[float, int, measures.AttentionFigures]] = deque(maxlen=_SAMPLES)
        self._places: dict[tuple[str, str], _Place] = {}

    @classmethod
    def from_environment(cls) -> "Measures":
        """What CHAOS_MM_AGENT_MEASURES asks for. Raises InvalidParams on a kind that there is not."""
        words = (word.strip() for word in os.environ.get(ENVIRONMENT, "").split(","))
        return cls(frozenset(word for word in words if word))

    def wants(self, kind: str) -> bool:
        """Whether an adapter shall hand such observations over; where not, it captures nothing at all."""
        return kind in self.kinds

    def observe_attention(self, q: Any, k: Any, layer: int, *, causal: bool = True, scale: float | None = None) -> None:
        """A canary's queries (heads, n, dim) and keys (kv heads, m, dim) of one call; n of 2 and more tell most."""
        if not self.wants("attention"):
            return
        figures = measures.attention(q, k, causal=causal, scale=scale, skip_sink=self._skip_sink)
        with self._lock:
            self._attention.append((self._clock(), layer, figures))

    def observe_embedding(
        self,
        place: str,
        tensor: Any,
        *,
        modality: str = "image",
        medium: str = "",
        clean: bool = False,
        under: Hashable = None,
    ) -> None:
        """A canary's encoder output (rows, dim) as handed on. ``medium``: a hash of the picture or clip, where known.

        ``clean``: nothing was armed; it then joins the reference of its place and modality as well, and its pooled
        row is what the same medium is held against later. Without it, the mean row of all clean outputs is.
        ``under``: which leases lived; what was seen under others before is not averaged with this.
        """
        if not self.wants("embedding") or tensor.numel() == 0:
            return
        pooled = tensor.detach().float().mean(0).cpu()
        with self._lock:
            entry = self._places.setdefault((place, modality), _Place())
            if clean:
                entry.reference.add(tensor)
                if medium and len(entry.media) < _MEDIA:
                    entry.media.setdefault(medium, pooled)
            entry.seen.append(_Seen(self._clock(), pooled, medium, measures.nonfinite(tensor), (clean, under)))

    def facts(self) -> dict[str, list[dict[str, Any]]]:
        """Each measure of the last seconds by name, one entry a site: ``value``, ``unit``, ``samples``, ``site``.

        At each layer (``layer.3``): nonfinite_count, attention_entropy_nats, attention_entropy_ratio,
        attention_max_share_ratio, attention_vanished_heads_ratio, attention_query_key_kl_nats. At each place and
        modality (``projector/image``): nonfinite_count, embedding_shift_sigma, alignment_cosine, alignment_flip_ratio.
        Strict JSON; what is not known is left out.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        with self._lock:
            since = self._clock() - self._window
            for layer in sorted({layer for at, layer, _ in self._attention if at >= since}):
                fresh = [figures for at, of, figures in self._attention if of == layer and at >= since]
                _gather(found, f"layer.{layer}", _attention_facts(fresh))
            for (place, modality), entry in sorted(self._places.items()):
                _gather(found, f"{place}/{modality}", _place_facts(entry, since))
        return found


_Fact = tuple[float, str, int]
"""Value, unit, samples."""
_ATTENTION: Final[Mapping[str, tuple[str, str]]] = {
    "attention_entropy_nats": ("entropy_nats", "nats"),
    "attention_entropy_ratio": ("entropy_ratio", "of ln n"),
    "attention_max_share_ratio": ("max_share", "ratio"),
    "attention_vanished_heads_ratio": ("vanished_heads", "ratio"),
    "attention_query_key_kl_nats": ("kl_nats", "nats a dimension"),
}


def _gather(found: dict[str, list[dict[str, Any]]], site: str, facts: Mapping[str, _Fact]) -> None:
    for name, (value, unit, samples) in facts.items():
        found.setdefault(name, []).append({"value": value, "unit": unit, "samples": samples, "site": site})


def _attention_facts(fresh: Sequence[measures.AttentionFigures]) -> dict[str, _Fact]:
    found: dict[str, _Fact] = {"nonfinite_count": (sum(figures.nonfinite for figures in fresh), "values", len(fresh))}
    for name, (attribute, unit) in _ATTENTION.items():
        values = [v for figures in fresh if (v := getattr(figures, attribute)) is not None]
        if values:
            found[name] = (sum(values) / len(values), unit, len(values))
    return found


def _place_facts(entry: _Place, since: float) -> dict[str, _Fact]:
    fresh = list(_fresh(entry.seen, since))
    if not fresh:
        return {}
    found: dict[str, _Fact] = {"nonfinite_count": (sum(seen.nonfinite for seen in fresh), "values", len(fresh))}
    finite = [(seen.pooled, seen.medium) for seen in fresh if seen.nonfinite == 0]
    row, std = entry.reference.row, entry.reference.std
    if not finite or row is None or not std > 0 or any(pooled.shape != row.shape for pooled, _ in finite):
        return found
    mean = sum(pooled for pooled, _ in finite) / len(finite)
    found["embedding_shift_sigma"] = (measures.shift_sigma(mean, row, std), "sigma", len(finite))
    cosines = [measures.alignment(pooled, entry.media.get(medium, row)) for pooled, medium in finite]
    if all(cosine == cosine for cosine in cosines):
        found["alignment_cosine"] = (sum(cosines) / len(cosines), "cosine", len(cosines))
    known = [(pooled, medium) for pooled, medium in finite if medium in entry.media]
    if known and len(entry.media) > 1:
        flips = sum(_nearest(pooled, entry.media) != medium for pooled, medium in known)
        found["alignment_flip_ratio"] = (flips / len(known), "ratio", len(known))
    return found


def _fresh(seen: deque[_Seen], since: float) -> Iterator[_Seen]:
    """From the newest back, up to where a lease began or ended: clean outputs and struck ones are not averaged."""
    for one in reversed(seen):
        if one.at < since or one.under != seen[-1].under:
            return
        yield one


def _nearest(pooled: Any, media: Mapping[str, Any]) -> str:
    return max(media, key=lambda medium: measures.alignment(pooled, media[medium]))
