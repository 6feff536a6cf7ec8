"""The parts of a run, typed, each made of whatever JSON there is; a missing key is "", 0, None or nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.report.loose import flag, items, mapping, number, text, whole
from chaos_mm.sli.indicators import INDICATORS

__all__ = [
    "PHASES",
    "Achieved",
    "Hits",
    "Lease",
    "Objective",
    "Phase",
    "Reason",
    "Sample",
    "Window",
    "all_of",
    "unit_of",
]

PHASES = ("baseline", "fault", "recovery")


@dataclass(frozen=True, slots=True)
class Reason:
    """One true word and why."""

    word: str
    reason: str

    @classmethod
    def of(cls, told: Any) -> "Reason":
        """From ``{word, reason}``."""
        return cls(text(mapping(told).get("word")), text(mapping(told).get("reason")))


@dataclass(frozen=True, slots=True)
class Hits:
    """Requests that a lease's selector met, those it changed, and those it failed on."""

    matched: int = 0
    applied: int = 0
    errored: int = 0

    @classmethod
    def of(cls, told: Any) -> "Hits":
        """From ``{matched, applied, errored}``."""
        found = mapping(told)
        return cls(*(whole(found.get(name)) for name in ("matched", "applied", "errored")))


@dataclass(frozen=True, slots=True)
class Achieved:
    """What the changes came to, over ``count`` requests, in the unit its name ends with."""

    name: str
    count: int
    mean: float | None
    low: float | None
    high: float | None

    @classmethod
    def all_of(cls, told: Any) -> tuple["Achieved", ...]:
        """From ``{name: {count, mean, min, max}}``, or ``{name: number}`` for a single request."""
        return tuple(cls._one(text(name), value) for name, value in mapping(told).items())

    @classmethod
    def _one(cls, name: str, told: Any) -> "Achieved":
        if number(told) is not None:
            return cls(name, 1, number(told), number(told), number(told))
        found = mapping(told)
        return cls(
            name,
            whole(found.get("count")),
            number(found.get("mean")),
            number(found.get("min")),
            number(found.get("max")),
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """One injection and its evidence. ``expected``: the least of ``applied`` that counts as exercised.

    ``undo``: how far it is, in words, "" where none was needed; ``fatal``: why a restart was needed.
    """

    name: str
    fault: str
    point: str
    params: Mapping[str, Any]
    blast_radius: Mapping[str, Any]
    seed: str
    ttl_seconds: float | None
    hits: Hits
    expected: int | None
    achieved: tuple[Achieved, ...]
    ended_by: str
    released: bool
    sites: Mapping[str, Any]
    fatal: str
    undo: str

    @classmethod
    def of(cls, told: Any) -> "Lease":
        """From an entry of verdict.json's ``leases``."""
        found = mapping(told)
        return cls(
            name=text(found.get("name")),
            fault=text(found.get("fault")),
            point=text(found.get("point")),
            params=mapping(found.get("params")),
            blast_radius=mapping(found.get("blast_radius")),
            seed=text(found.get("seed")),
            ttl_seconds=number(found.get("ttl_seconds")),
            hits=Hits.of(found),
            expected=None if number(found.get("expected")) is None else whole(found.get("expected")),
            achieved=Achieved.all_of(found.get("achieved")),
            ended_by=text(found.get("ended_by")),
            released=flag(found.get("released")),
            sites=mapping(found.get("sites")),
            fatal=text(mapping(found.get("engine")).get("fatal")),
            undo=_undo(mapping(found.get("undo"))),
        )


def _undo(told: Mapping[str, Any]) -> str:
    if not told:
        return ""
    if flag(told.get("pending")):
        return "still under way when last heard of"
    figures = ", ".join(
        f"{name} {value:g}"
        for name, found in mapping(told.get("figures")).items()
        if (value := number(found)) is not None
    )
    reason = text(told.get("reason"))
    if flag(told.get("proven")):
        said = f"proven; {reason}" if reason else "proven"
    else:
        said = f"NOT PROVEN: {reason or 'no reason was given'}"
    return f"{said} ({figures})" if figures else said


@dataclass(frozen=True, slots=True)
class Window:
    """The worst window of an objective in one phase, or one answer of an SLI. ``started_seconds``: within the phase."""

    measured: bool
    value: float
    unit: str
    samples: int
    met: bool
    reason: str
    windows: int
    without_data: int
    started_seconds: float | None
    window_seconds: float | None

    @classmethod
    def of(cls, told: Any, unit: str) -> "Window":
        """From a measurement; one whose value is no number was not measured. ``unit`` is used when none is given."""
        found = mapping(told)
        value = number(found.get("value"))
        return cls(
            measured=flag(found.get("measured")) and value is not None,
            value=value or 0.0,
            unit=text(found.get("unit")) or unit,
            samples=whole(found.get("samples")),
            met=flag(found.get("met")),
            reason=text(found.get("reason")),
            windows=whole(found.get("windows")),
            without_data=whole(found.get("without_data")),
            started_seconds=number(found.get("started_seconds")),
            window_seconds=number(found.get("window_seconds")),
        )


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective and its worst window in each phase that has one. Only a ``named`` one is judged."""

    name: str
    sli: str
    comparison: str
    threshold: float | None
    window_seconds: float | None
    min_samples: int
    guard: bool
    named: bool
    filters: Mapping[str, Any]
    phases: Mapping[str, Window]

    @classmethod
    def of(cls, told: Any) -> "Objective":
        """From an entry of verdict.json's ``objectives``, or of the ``run`` event's, which has no phases."""
        found = mapping(told)
        sli = text(found.get("sli"))
        return cls(
            name=text(found.get("name")),
            sli=sli,
            comparison=text(found.get("comparison")),
            threshold=number(found.get("threshold")),
            window_seconds=number(found.get("window_seconds")),
            min_samples=whole(found.get("min_samples")),
            guard=flag(found.get("guard")),
            named=found.get("named", True) is not False,
            filters=mapping(found.get("filters")),
            phases={
                phase: Window.of(answer, unit_of(sli))
                for phase, answer in mapping(found.get("phases")).items()
                if phase in PHASES and isinstance(answer, dict)
            },
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that began ``began`` seconds after arming; ``seconds`` is None when its end is not known."""

    name: str
    began: float
    seconds: float | None

    @classmethod
    def of(cls, told: Any) -> "Phase":
        """From an entry of verdict.json's ``phases``."""
        found = mapping(told)
        return cls(text(found.get("name")), number(found.get("began")) or 0.0, number(found.get("seconds")))


@dataclass(frozen=True, slots=True)
class Sample:
    """One canary's part before and after a fault; paths are relative to the run's folder."""

    lease: str
    fault: str
    kind: str
    request_id: str
    before: str
    after: str
    media_before: str
    media_after: str
    achieved: tuple[Achieved, ...]
    axes: Mapping[str, Any]

    @classmethod
    def of(cls, told: Any) -> "Sample":
        """From an entry of verdict.json's ``samples``."""
        found = mapping(told)
        names = ("lease", "fault", "kind", "request_id", "before", "after", "media_before", "media_after")
        return cls(
            **{name: text(found.get(name)) for name in names},
            achieved=Achieved.all_of(found.get("achieved")),
            axes=mapping(found.get("axes")),
        )


def unit_of(sli: str) -> str:
    """The unit of an SLI of ours ("ratio", "s", "requests", "1/s"), "" for another."""
    if sli == "recovery_seconds":
        return "s"
    return INDICATORS[sli].unit if sli in INDICATORS else ""


def all_of(kind: type[Any], told: Any) -> tuple[Any, ...]:
    """``kind.of`` of every object in an array; what is no object is left out."""
    return tuple(kind.of(one) for one in items(told) if isinstance(one, dict))
