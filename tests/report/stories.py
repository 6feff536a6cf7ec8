"""Runs that never happened, told as the verdict control tells real ones: events second by second, then the verdict."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chaos_mm.report.words import EXIT_CODES

PHASES = ("baseline", "fault", "recovery")
VERSIONS = {
    "chaos_mm": "0.1.0",
    "chaostoolkit": "1.19.0",
    "chaostoolkit-lib": "1.44.0",
    "python": "3.11.9",
    "platform": "Linux-6.1-x86_64",
}
Folder = Path
Samples = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Watched:
    """One objective and how it fares: the value it has in each phase, and how much it trembles."""

    name: str
    sli: str
    threshold: float
    levels: tuple[float, float, float]
    tremble: float = 0.01
    comparison: str = "gte"
    kind: str = ""
    rate: float = 3.0
    guard: bool = False
    named: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sli": self.sli,
            "comparison": self.comparison,
            "threshold": self.threshold,
            "window_seconds": 10.0,
            "min_samples": 5,
            "hold_seconds": 5.0 if self.guard else 0.0,
            "guard": self.guard,
            "filters": {"kind": self.kind} if self.kind else {},
        }

    def met(self, value: float) -> bool:
        return value >= self.threshold if self.comparison == "gte" else value <= self.threshold

    @property
    def unit(self) -> str:
        return "requests" if self.sli == "leak_count" else "ratio"


@dataclass(frozen=True)
class Story:
    """What happened in one run."""

    experiment: str
    title: str
    fault: str
    params: Mapping[str, Any]
    watched: tuple[Watched, ...]
    reasons: tuple[tuple[str, str], ...]
    achieved: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    samples: Samples | None = None
    began: datetime = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
    rate: float = 1.0
    selected: float = 3.0
    seconds: tuple[float, float, float] = (20.0, 20.0, 20.0)
    cut: float = 0.0  # seconds after arming at which a guard or a signal ends the method; 0: nothing does
    ends: tuple[dict[str, Any], ...] = ()  # what is written at that moment
    recovered: float | None = None
    expect: str | None = None
    without_data: tuple[float, float] = (0.0, 0.0)
    run: str = "1c4fd7e20b91"

    @property
    def word(self) -> str:
        return self.reasons[0][0]


class Teller:
    """Writes one story's events and keeps what the verdict needs of them."""

    def __init__(self, story: Story) -> None:
        self.story, self.random = story, random.Random(story.run)
        self.lines: list[str] = []
        self.series: dict[str, list[dict[str, Any]]] = {one.name: [] for one in story.watched}
        self.began: dict[str, float] = {}
        self.matched = self.applied = 0

    def event(self, at: float, event: str, **fields: Any) -> None:
        stamp = (self.story.began + timedelta(seconds=at)).isoformat(timespec="milliseconds")
        line = {"at": stamp.replace("+00:00", "Z"), "t": round(at, 3), "event": event, **fields}
        self.lines.append(json.dumps(line, allow_nan=False))

    def tell(self) -> None:
        story = self.story
        base, fault, recovery = story.seconds
        lengths = dict(zip(PHASES, story.seconds, strict=True))
        self.event(0, "run", **self.head(lengths))
        self.phase(0.01, "baseline", base)
        injected = base + 0.4
        self.activity(injected, "inject-" + story.fault.replace("_", "-"), "baseline")
        self.event(injected, "inject", **{k: v for k, v in self.lease().items() if k != "name"}, lease=story.fault)
        cut = story.cut or injected + fault
        self.phase(injected + 0.05, "fault", cut - injected - 0.05)
        for fields in story.ends:
            self.event(cut, **fields)
        self.activity(cut + 0.1, "release", "fault")
        self.event(cut + 0.12, "released", lease=story.fault, evidence=self.evidence())
        self.phase(cut + 0.15, "recovery", recovery)
        self.activity(cut + 0.2 + recovery, "release", "recovery")
        self.event(cut + 0.3 + recovery, "phase", phase="end")
        self.began["end"] = cut + 0.3 + recovery

    def head(self, lengths: Mapping[str, float]) -> dict[str, Any]:
        story = self.story
        return {
            "schema": 1,
            "run": story.run,
            "experiment": story.experiment,
            "title": story.title,
            "source": f"experiments/{story.experiment}.json",
            "pid": 4711,
            "replay": replay(story),
            "dry": None,
            "expect": story.expect,
            "versions": VERSIONS,
            "phase_seconds": dict(lengths),
            "objectives": [one.to_json() for one in story.watched],
            "configuration": configuration(story),
        }

    def activity(self, at: float, name: str, phase: str) -> None:
        known = {"type": "action", "status": "succeeded", "seconds": 0.021, "background": False}
        self.event(at, "activity", name=name, phase=phase, **known)

    def phase(self, at: float, phase: str, seconds: float) -> None:
        self.began[phase] = at
        self.event(at, "phase", phase=phase)
        for second in range(1, int(seconds) + 1):
            if phase == "fault":
                new = round(self.story.selected)
                self.matched += new
                self.applied += round(new * self.story.rate)
            self.event(at + second, "sample", phase=phase, seconds=float(second), **self.answers(phase, second))

    def answers(self, phase: str, second: int) -> dict[str, Any]:
        answers = {}
        for one in self.story.watched:
            low, high = self.story.without_data
            blind = low <= self.began[phase] + second < high
            value, count = self.value(one, phase, second), int(one.rate * min(second, 10))
            answers[one.name] = {
                "measured": not blind,
                "value": 0.0 if blind else value,
                "samples": 0 if blind else count,
                "window_seconds": float(min(second, 10)),
                "met": not blind and one.met(value),
                "whole": second >= 10,
            }
            self.series[one.name].append({"phase": phase, "second": second, **answers[one.name]})
        hits = {self.story.fault: {"matched": self.matched, "applied": self.applied, "errored": 0}}
        return {"answers": answers, "hits": hits}

    def value(self, one: Watched, phase: str, second: int) -> float:
        """A window slides: it takes ten seconds until the old phase is out of it."""
        place = PHASES.index(phase)
        share = min(1.0, second / 10)
        if phase == "baseline":
            share = 1.0
        before = one.levels[max(0, place - 1)]
        mean = before + share * (one.levels[place] - before)
        if one.unit == "requests":
            return float(round(mean))
        return round(min(1.0, max(0.0, mean + self.random.gauss(0, one.tremble))), 4)

    def evidence(self) -> dict[str, Any]:
        hits = {"matched": self.matched, "applied": self.applied, "errored": 0}
        return {**self.lease(), **hits, "state": "ended", "ended_by": "release", "achieved": self.achieved()}

    def achieved(self) -> dict[str, Any]:
        count = self.applied
        return {
            name: {"count": count, "mean": mean, "min": low, "max": high}
            for name, (mean, low, high) in self.story.achieved.items()
        }

    def lease(self) -> dict[str, Any]:
        story = self.story
        return {
            "name": story.fault,
            "fault": story.fault,
            "point": "proxy",
            "params": dict(story.params),
            "blast_radius": {"rate": 1.0, "selector": "canary", "limit": None},
            "ttl_seconds": 300.0,
            "seed": 0,
        }

    def worst(self, one: Watched, phase: str) -> dict[str, Any]:
        whole = [answer for answer in self.series[one.name] if answer["phase"] == phase and answer["whole"]]
        seen = [answer for answer in whole if answer["measured"]]
        counts = {"windows": len(whole), "without_data": len(whole) - len(seen)}
        if not seen:
            reason = "no window of 10 s lies wholly in the phase"
            empty = {"measured": False, "value": 0.0, "unit": one.unit, "samples": 0, "window_seconds": 10.0}
            return {**empty, **counts, "met": False, "reason": reason, "started_seconds": 0.0}
        pick = (min if one.comparison == "gte" else max)(seen, key=lambda answer: float(answer["value"]))
        kept = {name: pick[name] for name in ("measured", "value", "samples", "window_seconds", "met")}
        signs = "at least" if one.comparison == "gte" else "at most"
        sentence = f"{one.name}: {one.sli} is {pick['value']:.4g}, {'' if pick['met'] else 'not '}{signs}"
        shown = {"unit": one.unit, "reason": f"{sentence} {one.threshold:g}"}
        return {**kept, **shown, **counts, "started_seconds": pick["second"] - 10.0}


def replay(story: Story) -> str:
    doses = " ".join(f"--var {name}:float={value}" for name, value in story.params.items())
    return f"chaos run {doses} experiments/{story.experiment}.json"


def configuration(story: Story) -> dict[str, Any]:
    urls = {"proxy_control_url": "http://127.0.0.1:8602", "load_control_url": "http://127.0.0.1:8605"}
    return {**urls, "load_rate": 0, "fault_seconds": story.seconds[1], "seed": 0, "rate": 1.0, **story.params}


def verdict_of(story: Story, teller: Teller, folder: str) -> dict[str, Any]:
    hits = {"matched": teller.matched, "applied": teller.applied, "errored": 0}
    lease = {
        **teller.evidence(),
        "expected": max(1, round(0.5 * teller.matched)),
        "released": True,
    }
    ended = story.began + timedelta(seconds=teller.began["end"])
    return {
        "schema": 1,
        "run": story.run,
        "folder": folder,
        "experiment": story.experiment,
        "title": story.title,
        "source": f"experiments/{story.experiment}.json",
        "started": story.began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "ended": ended.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "duration_seconds": round(teller.began["end"], 3),
        "verdict": story.word,
        "words": list(dict.fromkeys(word for word, _ in story.reasons)),
        "reasons": [{"word": word, "reason": reason} for word, reason in story.reasons],
        "expect": story.expect,
        "exit_code": EXIT_CODES[story.word],
        "dry": None,
        "fault": story.fault,
        "leases": [lease],
        "hits": hits,
        "achieved": teller.achieved(),
        "phases": _phases(teller),
        "objectives": [_objective(one, teller) for one in story.watched],
        "slis": {phase: {one.sli: teller.worst(one, phase) for one in story.watched} for phase in PHASES},
        "recovery_seconds": _recovery(story),
        "residue": {"measured": True, "live": 0, "reason": ""},
        "target_replaced": False,
        "samples": [],
        "versions": VERSIONS,
        "target": {"url": "http://127.0.0.1:8600", "model": "chaos-mm-tiny"},
        "replay": replay(story),
        "configuration": configuration(story),
    }


def _phases(teller: Teller) -> list[dict[str, Any]]:
    marks = list(teller.began.items())
    pairs = zip(marks, marks[1:], strict=False)
    return [{"name": n, "seconds": round(end - at, 3), "began": round(at, 3)} for (n, at), (_, end) in pairs]


def _objective(one: Watched, teller: Teller) -> dict[str, Any]:
    phases = {phase: teller.worst(one, phase) for phase in PHASES}
    told = {name: value for name, value in one.to_json().items() if name != "hold_seconds"}
    return {**told, "named": one.named, "phases": phases}


def _recovery(story: Story) -> dict[str, Any]:
    back = story.recovered
    reason = "" if back is not None else "not every objective was met again before the run ended"
    known = {"unit": "s", "samples": 120, "window_seconds": 20.0, "reason": reason}
    return {"measured": back is not None, "value": back or 0.0, **known}


def write(story: Story, reports: Path, *, cut_in: str = "", verdict: bool = True) -> Path:
    """The story's folder: events.jsonl, cut in the first line that holds ``cut_in``, verdict.json, samples."""
    name = f"{story.began:%Y%m%dT%H%M%SZ}-{story.experiment}-{story.run[-6:]}"
    folder = reports / name
    folder.mkdir(parents=True)
    teller = Teller(story)
    teller.tell()
    told = verdict_of(story, teller, name)
    if story.samples is not None:
        told["samples"] = [story.samples(folder)]
    kept = ("verdict", "words", "reasons", "exit_code")
    teller.event(teller.began["end"] + 0.4, "residue", **told["residue"])
    teller.event(teller.began["end"] + 0.5, "verdict", **{name: told[name] for name in kept})
    log = "\n".join(teller.lines) + "\n"
    (folder / "events.jsonl").write_text(log[: log.index(cut_in)] if cut_in else log)
    if verdict:
        (folder / "verdict.json").write_text(json.dumps(told, indent=1, allow_nan=False), encoding="utf-8")
    return folder
