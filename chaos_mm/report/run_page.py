"""What the page of one run shows, as plain values for its template."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chaos_mm.report import media
from chaos_mm.report.chart import WIDTHS, chart
from chaos_mm.report.events import Event, when
from chaos_mm.report.folder import RunReport
from chaos_mm.report.loose import mapping, number, text
from chaos_mm.report.parts import PHASES, Achieved, Lease, Objective, Sample, Window
from chaos_mm.report.telling import by_weight, expectation, hit, lead, tone
from chaos_mm.report.timeline import Series, Timeline, series, timeline
from chaos_mm.report.wording import achieved, bound, clipped, duration, moment, name_of, plain, together, value, window
from chaos_mm.report.words import MEANINGS

__all__ = ["page"]

MOST_EVENTS, MOST_CHARTS, MOST_SAMPLES = 500, 24, 32
MOST_MEDIA_CHARACTERS = 24 << 20  # of data URIs: a page beyond that opens on no phone
_LONG = 600
Pairs = list[tuple[str, str]]


def page(run: RunReport) -> dict[str, Any]:
    """The template's variables; texts are as hostile as the run made them, the template escapes all of them."""
    line, objectives = timeline(run), by_weight(run.objectives)
    samples, left_out = _samples(run)
    return {
        "title": clipped(run.title, 160),
        "experiment": clipped(run.experiment, 80),
        "started": moment(run.text("started")),
        "verdict": _verdict(run),
        "notes": (*run.notes, *left_out),
        "facts_of_run": _facts(run),
        "charts": [_chart(series(run, one), line, at) for at, one in enumerate(objectives[:MOST_CHARTS])],
        "phases": [phase for phase in PHASES if any(phase in one.phases for one in run.objectives)],
        "objectives": [_objective(one) for one in objectives],
        "samples": samples,
        "leases": [_lease(one) for one in run.leases],
        "slis": _slis(run.slis),
        "replay": run.text("replay"),
        "environment": _environment(run),
        "configuration": pairs(mapping(run.told.get("configuration"))),
        **_events(run.log.events),
    }


def _verdict(run: RunReport) -> dict[str, Any]:
    reasons = [reason for reason in run.reasons if reason.reason]
    return {
        "word": name_of(run.word),
        "tone": tone(run.word),
        "meaning": MEANINGS[run.word],
        "lead": [together(told) for told in lead(run)],
        "reasons": [(name_of(one.word), *_short(one.reason)) for one in reasons],
        "others": [name_of(word) for word in run.words if word != run.word],
    }


def _short(told: str) -> tuple[str, str]:
    """What stands in the open, and the whole of it where that is not all."""
    return (told, "") if len(told) <= _LONG else (clipped(told, _LONG), told)


def _facts(run: RunReport) -> Pairs:
    wanted, came = expectation(run)
    expected = f"{name_of(wanted)} ({'as it came' if came else 'it came otherwise'})" if wanted else ""
    facts = [
        ("Fault", clipped(run.fault, 80) or "none"),
        ("Requests changed", f"{hit(run.hits)} selected"),
        ("Recovery", _recovery(run.recovery)),
        ("Duration", duration(run.duration_seconds)),
        ("Exit code", str(run.exit_code)),
        ("Expected", expected),
        ("Dry run", clipped(run.text("dry"), 40)),
        ("Left behind", _residue(mapping(run.told.get("residue")))),
        ("Target", "replaced by another process meanwhile" if run.told.get("target_replaced") is True else ""),
    ]
    return [(name, told) for name, told in facts if told]


def _recovery(found: Window | None) -> str:
    if found is None:
        return ""
    if not found.measured:
        return "no data"
    return f"{duration(found.value)} after release" if found.value else "at once"


def _residue(told: Mapping[str, Any]) -> str:
    if not told:
        return ""
    if told.get("measured") is not True:
        return clipped(f"not known: {text(told.get('reason')) or 'no data'}", 200)
    living = number(told.get("live")) or 0
    return f"{living:g} live leases" if living else "nothing"


def _chart(told: Series, line: Timeline, at: int) -> dict[str, Any]:
    words = _in_words(told, line)
    drawn = {
        name: chart(told, line, width=width, identity=f"chart-{at}-{name}", description=words)
        for name, width in WIDTHS.items()
    }
    one = told.objective
    return {
        "name": clipped(one.name, 80),
        "about": clipped(_about(one), 160),
        "guard": one.guard,
        "named": one.named,
        "empty": not told.points,
        **drawn,
    }


def _in_words(told: Series, line: Timeline) -> str:
    """The chart for those who hear it."""
    one, shown = told.objective, [point for point in told.points if point.value is not None]
    unmet = sum(point.whole and not point.met for point in shown)
    windows = "; ".join(f"{phase}, worst {window(answer, one.threshold)}" for phase, answer in one.phases.items())
    faults = "; ".join(f"under fault from {span.start:.1f} s to {span.end:.1f} s" for span in line.faults[:4])
    marks = "; ".join(f"{mark.label} at {mark.at:.1f} s" for mark in line.marks[:6])
    told_of = [
        f"{one.sli} of {one.name}, {len(shown)} values in {line.end:.0f} s, {bound(one, told.unit)} needed",
        windows,
        faults,
        f"{unmet} windows not met",
        f"{len(told.gaps)} gaps without data" if told.gaps else "",
        marks,
    ]
    return clipped(". ".join(one for one in told_of if one) + ".", 900)


def _about(one: Objective) -> str:
    filters = ", ".join(f"{text(name)} {plain(told)}" for name, told in one.filters.items())
    return f"{one.sli}, {filters}" if filters else one.sli


def _objective(one: Objective) -> dict[str, Any]:
    unit = next((answer.unit for answer in one.phases.values() if answer.unit), "")
    least = f"at least {one.min_samples} requests" if one.min_samples else ""
    length = f"in every {one.window_seconds:g} s" if one.window_seconds else ""
    return {
        "name": clipped(one.name, 80),
        "about": clipped(_about(one), 160),
        "bound": bound(one, unit),
        "window": together(", ".join(told for told in (length, least) if told)),
        "role": ("judged, guard" if one.guard else "judged") if one.named else "guard only",
        "cells": {phase: _cell(answer, one) for phase, answer in one.phases.items()},
    }


def _cell(answer: Window, one: Objective) -> dict[str, Any]:
    where = _where(answer)
    missing = f"{answer.without_data} of {answer.windows} without data" if answer.without_data else ""
    # A reason that only says value and bound again stays out of the table.
    said = clipped(answer.reason, 200) if not answer.measured else ""
    return {
        "value": window(answer, one.threshold),
        "met": answer.met,
        "state": "met" if answer.met else "not met" if answer.measured else "no data",
        "count": f"n = {answer.samples}",
        "notes": [together(told) for told in (where, missing, said) if told],
    }


def _where(answer: Window) -> str:
    """Which of how many windows was the worst."""
    if not answer.windows or answer.started_seconds is None:
        return ""
    if answer.windows == 1:
        return f"one window of {duration(answer.window_seconds)}"
    return f"{answer.windows} windows, worst from {answer.started_seconds:.3g} s"


def _samples(run: RunReport) -> tuple[list[dict[str, Any]], list[str]]:
    """As many as a page can hold, and a note on the others."""
    shown: list[dict[str, Any]] = []
    size = 0
    for one in run.samples[:MOST_SAMPLES]:
        found = _sample(run, one)
        size += sum(len(medium.uri) for side in found["sides"] for medium in side.values() if medium is not None)
        if size > MOST_MEDIA_CHARACTERS:
            break
        shown.append(found)
    more = len(run.samples) - len(shown)
    return shown, [f"{more} samples are only in the folder, not on this page"] if more else []


def _sample(run: RunReport, one: Sample) -> dict[str, Any]:
    head = {
        "kind": one.kind if one.kind in ("image", "audio", "text") else "other",
        "fault": clipped(one.fault or one.lease, 80),
        "request": clipped(one.request_id, 80),
        "achieved": _achieved(one.achieved),
        "axes": _axes(one) if one.kind == "audio" else {},
    }
    if one.kind == "text":
        before, left = media.words(run.folder, one.before)
        after, right = media.words(run.folder, one.after)
        pieces = media.compared(before, after)
        return {**head, "problems": [told for told in (left, right) if told], "texts": pieces, "sides": []}
    sides = [_side(run, one.before, one.media_before), _side(run, one.after, one.media_after)]
    return {**head, "problems": [], "texts": None, "sides": sides}


def _side(run: RunReport, picture: str, sound: str) -> dict[str, Any]:
    heard = media.sound(run.folder, sound) if sound else None
    return {"picture": media.picture(run.folder, picture), "sound": heard}


def _axes(one: Sample) -> dict[str, str]:
    """The ends of a spectrogram's axes in words; both begin at 0. Empty when the run did not keep them."""
    seconds, highest = number(one.axes.get("seconds")), number(one.axes.get("hz_max"))
    low, high = number(one.axes.get("db_min")), number(one.axes.get("db_max"))
    if seconds is None or highest is None:
        return {}
    levels = f"{low:g} to {high:g} dB of full scale".replace("-", "−") if low is not None and high is not None else ""
    return {"seconds": f"{seconds:.3g} s", "frequency": f"{highest / 1000:.3g} kHz", "levels": levels}


def _achieved(found: Sequence[Achieved]) -> list[dict[str, str]]:
    return [_one_achieved(one) for one in found]


def _one_achieved(one: Achieved) -> dict[str, str]:
    name, unit = achieved(one)
    shown = {key: "–" if told is None else f"{told:.4g}" for key, told in _figures(one)}
    return {"name": clipped(name, 60), "unit": unit, "count": str(one.count), **shown}


def _figures(one: Achieved) -> Iterable[tuple[str, float | None]]:
    return (("mean", one.mean), ("low", one.low), ("high", one.high))


def _lease(one: Lease) -> dict[str, Any]:
    ended = one.ended_by or ("release" if one.released else "not seen to end")
    facts = [
        ("Injection point", one.point),
        ("Parameters", ", ".join(f"{name} = {told}" for name, told in pairs(one.params))),
        (
            "Blast radius",
            ", ".join(f"{name} {told}" for name, told in pairs(one.blast_radius) if told not in ("none", "0")),
        ),
        ("Seed", one.seed),
        ("Time to live", duration(one.ttl_seconds) if one.ttl_seconds else ""),
        ("Ended by", ended),
        ("Acted at", ", ".join(f"{name} {told}" for name, told in pairs(one.sites))),
        ("Undo", clipped(one.undo, 300)),
        ("Known beforehand", clipped(one.fatal, 200)),
    ]
    counts = [("selected", one.hits.matched), ("changed", one.hits.applied), ("failed", one.hits.errored)]
    least = [] if one.expected is None else [("needed to count", one.expected)]
    return {
        "name": clipped(one.name, 80),
        "fault": clipped(one.fault or one.name, 80),
        "facts": [(name, told) for name, told in facts if told],
        "counts": [(name, str(count)) for name, count in (*counts, *least)],
        "achieved": _achieved(one.achieved),
    }


def _slis(found: Mapping[str, Mapping[str, Window]]) -> dict[str, Any]:
    """A table of whole phases: a row an SLI, a column a phase."""
    names = list(dict.fromkeys(name for phase in found.values() for name in phase))
    rows = [(clipped(name, 60), [_whole_phase(found[phase].get(name)) for phase in found]) for name in names]
    return {"phases": list(found), "rows": rows}


def _whole_phase(answer: Window | None) -> tuple[str, str]:
    if answer is None:
        return "–", ""
    if not answer.measured:
        return "no data", clipped(answer.reason, 120)
    return value(answer.value, answer.unit), f"n = {answer.samples}"


def _environment(run: RunReport) -> Pairs:
    target = mapping(run.told.get("target"))
    head = {"Experiment file": run.text("source"), "Run": run.text("run"), "Folder": text(run.folder.name)}
    service = {"Service under test": text(target.get("url")), "Model": text(target.get("model"))}
    ended = {"Began": moment(run.text("started")), "Ended": moment(run.text("ended"))}
    told = {**head, **service, **ended, **dict(pairs(mapping(run.told.get("versions"))))}
    return [(name, clipped(said, 200)) for name, said in told.items() if said]


def pairs(told: Mapping[str, Any]) -> Pairs:
    """Names and values of an object, as texts."""
    return [(clipped(text(name), 80), clipped(plain(said), 300)) for name, said in told.items()]


def _events(found: Sequence[Event]) -> dict[str, Any]:
    """All but the samples, which the charts show."""
    told = [event for event in found if event.get("event") != "sample"]
    return {"events": [_event(event) for event in told[:MOST_EVENTS]], "more_events": max(0, len(told) - MOST_EVENTS)}


def _event(event: Event) -> tuple[str, str, str]:
    rest = {name: told for name, told in event.items() if name not in ("at", "t", "event")}
    if event.get("event") in ("run", "released", "verdict"):  # shown above, and long
        rest = {name: rest[name] for name in ("run", "lease", "verdict", "exit_code") if name in rest}
    said = ", ".join(f"{name} {told}" for name, told in pairs(rest) if told not in ("", "{}", "[]"))
    return f"{when(event):.2f} s", clipped(text(event.get("event")), 40), clipped(said, 300)
