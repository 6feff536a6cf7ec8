"""Objectives: OpenSLO v1 files in, judgements out. Reading is strict, judging fails closed.

One file holds one ``kind: SLO`` document. What OpenSLO has a place for stands there:

* ``spec.indicator.metadata.name`` is the SLI (a key of ``indicators.INDICATORS``, or ``recovery_seconds``);
* a ``ratioMetric`` with ``target: 0.99`` means at least 0.99 of the requests were good;
* a ``thresholdMetric`` on a latency SLI (ttft, itl, e2e, max_gap) with ``op: lte, value: 2, target: 0.95`` means at
  least 0.95 of the requests took at most 2 s; on any other SLI ``op`` and ``value`` bound the value of every window and
  ``target``, which OpenSLO demands, is not used.

What it has no place for are annotations under ``chaos-mm.io/`` (text, as OpenSLO demands): ``window-seconds``,
``min-samples``, ``hold-seconds`` (how long it must be broken before a guard stops the run), ``guard`` and the filters
``audience``, ``modality``, ``kind``.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from chaos_mm.core.errors import BadRequest
from chaos_mm.sli.indicators import INDICATORS, Selection, conflict
from chaos_mm.sli.openslo import Document

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "gte": lambda value, threshold: value >= threshold,
    "gt": lambda value, threshold: value > threshold,
    "lte": lambda value, threshold: value <= threshold,
    "lt": lambda value, threshold: value < threshold,
}
_SIGNS = {"gte": "at least", "gt": "above", "lte": "at most", "lt": "below"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Was the objective met, and why or why not, in one sentence that stands alone."""

    met: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective. ``filters`` go to the load's ``GET /slis`` as they are; ``threshold`` is in the SLI's unit."""

    name: str
    sli: str
    filters: Mapping[str, str] = field(default_factory=dict)
    comparison: str = "gte"
    threshold: float = 0.0
    window_seconds: float = 10.0
    min_samples: int = 1
    hold_seconds: float = 0.0
    guard: bool = False
    description: str = ""
    source: str = ""

    def judge(self, answer: object) -> Judgement:
        """Judge a probe's answer. Missing, of a wrong type, not finite or too few samples is not met; never raises."""
        problem = _unusable(answer, self.min_samples)
        if problem or not isinstance(answer, Mapping):
            return Judgement(False, f"{self.name}: {problem}")
        value = float(answer["value"])
        wanted = f"{_SIGNS[self.comparison]} {self.threshold:g}"
        met = COMPARISONS[self.comparison](value, self.threshold)
        return Judgement(met, f"{self.name}: {self.sli} is {value:.4g}, {'' if met else 'not '}{wanted}")

    def to_json(self) -> dict[str, Any]:
        """For journals and the command line."""
        names = ("name", "sli", "comparison", "threshold", "window_seconds", "min_samples", "hold_seconds", "guard")
        return {**{name: getattr(self, name) for name in names}, "filters": dict(self.filters)}


def _unusable(answer: object, min_samples: int) -> str:
    """Why an answer cannot be judged; "" when it can."""
    if not isinstance(answer, Mapping):
        return f"no data: the answer is {type(answer).__name__}, not an object"
    if answer.get("measured") is not True:
        reason = answer.get("reason")
        return f"no data: {reason if isinstance(reason, str) and reason else 'nothing was measured'}"
    value, samples = answer.get("value"), answer.get("samples")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
        return f"no data: the value is {value!r:.40}, not a finite number"
    if isinstance(samples, bool) or not isinstance(samples, int):
        return f"no data: samples is {samples!r:.40}, not a whole number"
    return f"no data: {samples} samples, at least {min_samples} needed" if samples < min_samples else ""


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond a double
        return False


def load(directory: str | os.PathLike[str] | None = None) -> dict[str, Objective]:
    """Every objective of the first of: ``directory``, $CHAOS_MM_OBJECTIVES, ./experiments/objectives, the shipped ones.

    Raises BadRequest for a named directory that is not there or holds none, and for a bad file: it names the file, the
    key, what was given and what is allowed.
    """
    folder = find(directory)
    found: dict[str, Objective] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        objective = read(_text(path), str(path))
        if objective.name in found:
            raise BadRequest(f"{path}: metadata.name {objective.name!r} is taken by {found[objective.name].source}")
        found[objective.name] = objective
    if not found:
        raise BadRequest(f"{folder}: no objectives there (*.yaml)")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read as UTF-8 text: {error}") from error


def find(directory: str | os.PathLike[str] | None = None) -> Path:
    """The folder that ``load`` reads. Raises BadRequest when a folder that was asked for by name is not there."""
    named = directory or os.environ.get("CHAOS_MM_OBJECTIVES")
    if named:
        if not Path(named).is_dir():
            raise BadRequest(f"{named}: no such directory of objectives")
        return Path(named)
    here = Path("experiments/objectives")
    return here if here.is_dir() else packaged_dir()


def packaged_dir() -> Path:
    """The objectives that ship with the package; in a source checkout, those of the checkout."""
    package = Path(str(resources.files("chaos_mm")))
    shipped = package / "_experiments" / "objectives"
    return shipped if shipped.is_dir() else package.parent / "experiments" / "objectives"


def read(text: str, source: str = "objective") -> Objective:
    """One OpenSLO document. Raises BadRequest naming source, key, value and what is allowed."""
    try:
        return _read(text, source)
    except (ValueError, OverflowError, RecursionError) as error:  # values that cannot even be shown
        raise BadRequest(f"{source}: cannot be read: {type(error).__name__}: {error!s:.80}") from error


def _read(text: str, source: str) -> Objective:
    document = Document.parse(text, source)
    sli = document.word("spec.indicator.metadata.name", (*INDICATORS, "recovery_seconds"))
    comparison, threshold, limit = document.bound(sli, ratio=_is_share(sli))
    filters = document.filters()
    strange = sli in INDICATORS and conflict(sli, Selection(**filters))
    if strange:
        raise BadRequest(f"{source}: metadata.annotations: {strange}; leave that filter out or choose another SLI")
    filters |= {"threshold_seconds": limit} if limit else {}
    return Objective(
        name=document.name(),
        sli=sli,
        filters=filters,
        comparison=comparison,
        threshold=threshold,
        window_seconds=document.note_number("window-seconds", 10.0, low=1.0),
        min_samples=int(document.note_number("min-samples", 1.0, low=1.0)),
        hold_seconds=document.note_number("hold-seconds", 0.0, low=0.0),
        guard=document.note_flag("guard"),
        description=document.description(),
        source=source,
    )


def _is_share(sli: str) -> bool:
    return sli in INDICATORS and INDICATORS[sli].unit == "ratio" and INDICATORS[sli].higher_is_better
