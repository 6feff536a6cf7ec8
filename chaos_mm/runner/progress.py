"""Where a run is, from its events: the phase, the hits, each objective's values, and what is worth telling."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.sli.objectives import COMPARISONS

__all__ = ["SIGNS", "Progress", "Reading", "note"]

SIGNS = {"gte": "≥", "gt": ">", "lte": "≤", "lt": "<"}
_HISTORY = 60


@dataclass
class Reading:
    """An objective's samples so far. ``met`` is None while there are too few requests to tell."""

    name: str
    comparison: str = "gte"
    threshold: float = 0.0
    min_samples: int = 1
    met: bool | None = None
    told: bool = True
    value: float | None = None
    values: list[float | None] = field(default_factory=list)

    def take(self, answer: Mapping[str, Any]) -> None:
        """One more sample: its value, or that there was none. Shown as met or not by its value alone: the run judges
        whole windows, and a window that is not whole yet is worth seeing."""
        value = answer.get("value")
        self.value = float(value) if answer.get("measured") is True and isinstance(value, (int, float)) else None
        enough = self.value is not None and _whole(answer.get("samples")) >= self.min_samples
        within = COMPARISONS.get(self.comparison, COMPARISONS["gte"])
        self.met = within(self.value or 0.0, self.threshold) if enough else None
        self.values = [*self.values[1 - _HISTORY :], self.value]

    @property
    def said(self) -> str:
        """Its value and what it is to be."""
        value = "no data" if self.value is None else f"{self.value:.3g}"
        return f"{value} ({SIGNS.get(self.comparison, '')} {self.threshold:g})"


@dataclass
class Progress:
    """A run as its events tell it; anything may be missing from them."""

    title: str = ""
    phase: str = ""
    phase_seconds: dict[str, float] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    matched: int = 0
    applied: int = 0

    def take(self, event: Mapping[str, Any]) -> list[str]:
        """Follow one event; what is worth a line."""
        name = event.get("event")
        said = note(event)
        if name == "run":
            self._begin(event)
        elif name == "phase":
            self.phase = str(event.get("phase", ""))
            said = self._phase_said()
        elif name == "sample":
            return list(self._sample(event))
        return [said] if said else []

    @property
    def length(self) -> float:
        """Seconds the phase is to last, 0 where that is not known."""
        return self.phase_seconds.get(self.phase, 0.0)

    @property
    def hits(self) -> str:
        """How many of the matching requests were hit."""
        return f"{self.applied} of {self.matched}"

    def _begin(self, event: Mapping[str, Any]) -> None:
        self.title = str(event.get("title", ""))
        lengths = _mapping(event.get("phase_seconds"))
        self.phase_seconds = {str(k): float(v) for k, v in lengths.items() if isinstance(v, (int, float))}
        listed = event.get("objectives")
        for known in map(_mapping, listed if isinstance(listed, list) else []):
            if isinstance(known.get("name"), str):
                self.readings[known["name"]] = _reading(known)

    def _phase_said(self) -> str:
        if self.phase in ("", "end"):
            return ""
        return f"{self.phase} ({self.length:g} s)" if self.length else self.phase

    def _sample(self, event: Mapping[str, Any]) -> Iterator[str]:
        counts = [_mapping(one) for one in _mapping(event.get("hits")).values()]
        if counts:
            self.matched, self.applied = (sum(_whole(one.get(key)) for one in counts) for key in ("matched", "applied"))
        for name, answer in _mapping(event.get("answers")).items():
            reading = self.readings.setdefault(name, Reading(name))
            reading.take(_mapping(answer))
            if reading.met is not None and reading.met != reading.told:
                reading.told = reading.met
                yield f"{name} {'met again' if reading.met else 'not met'}: {reading.said}"


def note(event: Mapping[str, Any]) -> str:
    """What an event says to a person; "" where it is not worth a line."""
    make = _NOTES.get(str(event.get("event")))
    return make(event) if make else ""


def _inject(event: Mapping[str, Any]) -> str:
    params = ", ".join(f"{k}={v}" for k, v in _mapping(event.get("params")).items())
    return f"injected {event.get('fault')} at {event.get('point')} ({params})"


def _released(event: Mapping[str, Any]) -> str:
    evidence = _mapping(event.get("evidence"))
    return f"released {event.get('lease')}: {evidence.get('applied', '?')} of {evidence.get('matched', '?')} hit"


def _refused(event: Mapping[str, Any]) -> str:
    reasons = event.get("reasons")
    told = [str(_mapping(one).get("reason", "")) for one in reasons] if isinstance(reasons, list) else []
    return f"refused: {'; '.join(told)}"


def _activity(event: Mapping[str, Any]) -> str:
    return f"{event.get('type')} {event.get('name')} failed" if event.get("status") == "failed" else ""


def _residue(event: Mapping[str, Any]) -> str:
    return f"residue: {event.get('reason')}" if event.get("live") else ""


_NOTES: Mapping[str, Any] = {
    "inject": _inject,
    "released": _released,
    "refused": _refused,
    "activity": _activity,
    "residue": _residue,
    "guard": lambda event: f"a guard stops it: {event.get('reason')}",
    "signal": lambda event: f"{event.get('name')} received",
    "stop": lambda event: f"stopping: {event.get('reason')}",
    "rollback": lambda event: f"rollback {event.get('name')} failed" if event.get("status") == "failed" else "",
}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _reading(known: Mapping[str, Any]) -> Reading:
    threshold = known.get("threshold")
    return Reading(
        known["name"],
        str(known.get("comparison", "gte")),
        float(threshold) if isinstance(threshold, (int, float)) else 0.0,
        _whole(known.get("min_samples")) or 1,
    )
