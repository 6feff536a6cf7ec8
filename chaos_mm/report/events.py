"""The event log of a run, as far as it was written; and a verdict made of it where the run left none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_mm.report.files import plain_bytes
from chaos_mm.report.loose import flag, items, mapping, number, parse, text
from chaos_mm.sli.objectives import COMPARISONS

__all__ = ["Event", "Log", "read_log", "rebuilt", "when"]

_MOST_BYTES, _MOST_LINES = 64 << 20, 250_000  # a day of samples has 86,400
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Log:
    """``events``: the objects that could be read, in order. ``notes``: what could not, in words."""

    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()

    def named(self, *names: str) -> list[Event]:
        """The events of these names, in order."""
        return [event for event in self.events if event.get("event") in names]

    def first(self, name: str) -> Event:
        """The first event of that name, or an empty one."""
        return next((event for event in self.events if event.get("event") == name), {})

    @property
    def end(self) -> float:
        """Seconds after arming of the last thing that was written."""
        return max((when(event) for event in self.events), default=0.0)


def when(event: Event) -> float:
    """Seconds after arming; 0 where that is missing or below 0."""
    return max(0.0, number(event.get("t")) or 0.0)


def read_log(path: Path) -> Log:
    """Reads a log that may be missing, cut off at any byte or full of anything; never raises for its content."""
    try:
        data = plain_bytes(path, _MOST_BYTES + 1)
    except FileNotFoundError:
        return Log(notes=("there is no event log (events.jsonl)",))
    except OSError as error:
        return Log(notes=(f"the event log cannot be read: {error.strerror}",))
    lines = data[:_MOST_BYTES].split(b"\n", _MOST_LINES)
    more = lines.pop() if len(lines) > _MOST_LINES else b""
    events, bad = [], []
    for at, line in enumerate(lines):
        event = _event(line)
        if event is not None:
            events.append(event)
        elif line.strip():
            bad.append(at)
    return Log(tuple(events), tuple(_notes(lines, bad, len(data) > _MOST_BYTES or bool(more))))


def _event(line: bytes) -> Event | None:
    try:
        found = parse(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def _notes(lines: Sequence[bytes], bad: list[int], long: bool) -> Iterable[str]:
    if long:
        yield f"the event log is longer than {_MOST_BYTES >> 20} MiB or {_MOST_LINES} lines; the rest was not read"
    if bad and bad[-1] == len(lines) - 1:
        bad = bad[:-1]
        yield "the event log ends in the middle of a line"
    if bad:
        yield f"{len(bad)} lines of the event log could not be read, the first is line {bad[0] + 1}"


def rebuilt(log: Log) -> dict[str, Any]:
    """What the log alone can say, in the shape of verdict.json, without a verdict."""
    run = log.first("run")
    kept = ("run", "experiment", "title", "source", "expect", "dry", "versions", "replay", "configuration")
    leases = _leases(log)
    return {
        **{name: run[name] for name in kept if name in run},
        "started": next((text(event.get("at")) for event in log.events), ""),
        "ended": next((text(event.get("at")) for event in reversed(log.events)), ""),
        "duration_seconds": log.end,
        "fault": next((text(one.get("fault")) for one in leases), ""),
        "leases": leases,
        "hits": {name: sum(_count(one, name) for one in leases) for name in ("matched", "applied", "errored")},
        "achieved": next((one.get("achieved", {}) for one in leases), {}),
        "phases": _phases(log),
        "objectives": [_objective(one, log) for one in items(run.get("objectives")) if isinstance(one, dict)],
        **({"residue": dict(log.named("residue")[-1])} if log.named("residue") else {}),
    }


def _count(lease: Event, name: str) -> float:
    return number(lease.get(name)) or 0


def _leases(log: Log) -> list[dict[str, Any]]:
    """Those that were injected; with the hits of the last sample until their release brought the whole evidence."""
    found: dict[str, dict[str, Any]] = {}
    for event in log.named("inject"):
        name = text(event.get("lease"))
        found[name] = {**event, "name": name}
    for event in log.named("sample"):
        for name, hits in mapping(event.get("hits")).items():
            found.get(name, {}).update(mapping(hits))
    for event in log.named("released"):
        lease = found.setdefault(text(event.get("lease")), {"name": text(event.get("lease"))})
        lease.update({**mapping(event.get("evidence")), "released": True})
    return list(found.values())


def _phases(log: Log) -> list[dict[str, Any]]:
    marks = [(text(event.get("phase")), when(event)) for event in log.named("phase")]
    ends = [at for _, at in marks[1:]] + [log.end]
    pairs = zip(marks, ends, strict=False)
    return [{"name": name, "began": at, "seconds": max(0.0, end - at)} for (name, at), end in pairs if name != "end"]


def _objective(objective: Event, log: Log) -> dict[str, Any]:
    """The objective with the worst of the whole windows that the log holds, phase by phase."""
    name = text(objective.get("name"))
    phases: dict[str, list[tuple[Event, Event]]] = {}
    for event in log.named("sample"):
        answer = mapping(mapping(event.get("answers")).get(name))
        if flag(answer.get("whole")):
            phases.setdefault(text(event.get("phase")), []).append((event, answer))
    return {**objective, "phases": {phase: _worst(objective, pairs) for phase, pairs in phases.items()}}


def _worst(objective: Event, pairs: list[tuple[Event, Event]]) -> dict[str, Any]:
    seen = [
        (value, event, answer)
        for event, answer in pairs
        if flag(answer.get("measured")) and (value := number(answer.get("value"))) is not None
    ]
    counts = {"windows": len(pairs), "without_data": len(pairs) - len(seen)}
    if not seen:
        return {"measured": False, "value": 0.0, "reason": "no window had data", **counts}
    pick = max if text(objective.get("comparison")) in ("lte", "lt") else min
    value, event, answer = pick(seen, key=lambda one: one[0])
    length = number(answer.get("window_seconds")) or 0.0
    started = max(0.0, (number(event.get("seconds")) or 0.0) - length)
    return {**answer, **counts, "met": _met(objective, value), "started_seconds": started}


def _met(objective: Event, value: float) -> bool:
    compare, threshold = COMPARISONS.get(text(objective.get("comparison"))), number(objective.get("threshold"))
    return compare is not None and threshold is not None and compare(value, threshold)
