"""What a run leaves on disk at its end: its verdict, the load's records, the proxy's samples, and the pages over them.

The verdict is written first and by itself, so that whatever happens to the rest, the word stands. Records and samples
belong to other processes, which may be gone: that is told in the event log and is no error. A page that cannot be
rendered changes nothing about the run; it can be rendered again from the folder.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.judge import REPLACED, expected_hits, undone_by_replacement
from chaos_mm.controls.measuring import Load
from chaos_mm.controls.names import TARGET_MODEL, TARGET_URL, open_client, text_of
from chaos_mm.controls.versions import versions
from chaos_mm.core.errors import ChaosMMError

if TYPE_CHECKING:
    from chaos_mm.controls.ending import Ended
    from chaos_mm.controls.folder import RunFolder
    from chaos_mm.controls.phases import Phases
    from chaos_mm.controls.run import HeldLease, Run
    from chaos_mm.controls.worst import WorstWindows
    from chaos_mm.sli.objectives import Objective

__all__ = ["SCHEMA", "keep", "render", "scalars", "verdict_json"]

logger = logging.getLogger("chaostoolkit")
SCHEMA = 1
_SAMPLES_SECONDS = 5.0  # the proxy decodes and draws them when it is asked
_LEASE_FACTS = ("params", "blast_radius", "mode", "seed", "ttl_seconds", "achieved", "ended_by", "state")
_POINT_FACTS = ("sites", "engine", "undo")  # of points inside or beside an engine
_COUNTS = ("matched", "applied", "errored")
_WINDOW_FACTS = ("measured", "value", "unit", "samples", "window_seconds", "met", "reason", "windows", "without_data")


def keep(ended: "Ended", folder: "RunFolder", *, source: str = "", replay: str = "") -> str:
    """Write verdict.json, fetch records and samples, and write it again with what the samples are.

    Returns "", or why the verdict is not on disk, in words. Never raises ChaosMMError or OSError. Rendering the pages
    is ``render``, to be called once the event log and the journal are written, which they show.
    """
    verdict = verdict_json(ended, folder, source=source, replay=replay)
    trouble = _write(folder, verdict)
    _keep_records(ended.run, folder)
    samples = _keep_samples(ended.run, folder)
    return _write(folder, {**verdict, "samples": samples}) if samples else trouble


def render(folder: "RunFolder") -> bool:
    """Render the pages; whether it worked. Whatever the renderer raises is logged, with what to do about it."""
    try:
        folder.render()
    except Exception as error:  # a bug in a page must not cost a run its verdict
        logger.error(
            f"chaos_mm: the report was not rendered: {type(error).__name__}: {error}; everything is kept in "
            f"{folder.path}, and `chaos-mm report {folder.path.parent}` renders it again"
        )
        return False
    return True


def verdict_json(
    ended: "Ended",
    folder: "RunFolder",
    *,
    source: str = "",
    replay: str = "",
    samples: Sequence[Mapping[str, Any]] = (),
    now: datetime | None = None,
) -> dict[str, Any]:
    """Everything that verdict.json says (docs/verdict-schema.md), unscrubbed: ``RunFolder.keep_verdict`` scrubs."""
    run, judged, phases = ended.run, ended.judged, ended.phases
    leases = [_lease(held, ended) for held in run.leases.values()]
    return {
        "schema": SCHEMA,
        "run": run.id,
        "folder": folder.path.name,
        "experiment": run.experiment,
        "title": run.title,
        "source": source,
        "started": _stamp(datetime.fromisoformat(run.started)),
        "ended": _stamp(now or datetime.now(UTC)),
        "duration_seconds": round(run.clock() - folder.events.began, 3),
        **judged.to_json(),
        "expect": ended.expect or None,
        "dry": ended.facts.dry or None,
        "fault": leases[0]["fault"] if leases else "",
        "leases": leases,
        "hits": {name: sum(lease[name] for lease in leases) for name in _COUNTS},
        "achieved": leases[0]["achieved"] if leases else {},
        "phases": _phases(run, phases, folder.events.began) if phases is not None else [],
        "objectives": _objectives(phases.worst, list(phases.lasted)) if phases is not None else [],
        "slis": ended.slis,
        "recovery_seconds": ended.recovery,
        "residue": _residue(ended.residue),
        "target_replaced": ended.target_replaced,
        "samples": list(samples),
        "versions": versions(),
        "target": {"url": text_of(TARGET_URL, run.configuration), "model": text_of(TARGET_MODEL, run.configuration)},
        "replay": replay,
        "configuration": scalars(run.configuration),
    }


def scalars(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration is a text, a number, true or false."""
    return {name: value for name, value in configuration.items() if isinstance(value, (str, int, float, bool))}


def _lease(held: "HeldLease", ended: "Ended") -> dict[str, Any]:
    told = held.evidence
    hits = next((hits for hits in ended.facts.hits if hits.lease == held.name), None)
    return {
        "name": held.name,
        "fault": held.fault,
        "point": held.point,
        **{name: told.get(name) for name in _LEASE_FACTS},
        **{name: told[name] for name in _POINT_FACTS if told.get(name)},
        **(_replaced_undo(told) if hits is not None and undone_by_replacement(hits, ended.facts) else {}),
        **{name: int(told.get(name) or 0) for name in _COUNTS},
        "achieved": told.get("achieved") or {},
        "expected": expected_hits(hits) if hits is not None else 1,
        "released": held.released.is_set(),
    }


def _replaced_undo(told: Mapping[str, Any]) -> dict[str, Any]:
    return {"undo": {**told["undo"], "pending": False, "proven": True, "reason": REPLACED}, "state": "ended"}


def _phases(run: "Run", phases: "Phases", armed: float) -> list[dict[str, Any]]:
    """Phases follow each other without a gap, and the last one ended when the run entered ``end``."""
    began = run.phase_since - sum(phases.lasted.values()) - armed
    found = []
    for name, seconds in phases.lasted.items():
        found.append({"name": name, "seconds": round(seconds, 3), "began": round(began, 3)})
        began += seconds
    return found


def _objectives(worst: "WorstWindows", phases: Sequence[str]) -> list[dict[str, Any]]:
    named = {one.name for one in worst.named}
    return [_objective(one, one.name in named, worst, phases) for one in worst.objectives]


def _objective(objective: "Objective", is_named: bool, worst: "WorstWindows", phases: Sequence[str]) -> dict[str, Any]:
    told = {name: value for name, value in objective.to_json().items() if name != "hold_seconds"}
    return {**told, "named": is_named, "phases": {phase: _window(worst.answer(objective, phase)) for phase in phases}}


def _window(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: answer.get(name) for name in (*_WINDOW_FACTS, "started_seconds")}


def _residue(answer: Mapping[str, Any]) -> dict[str, Any]:
    live = int(answer.get("value") or 0)
    return {"measured": answer.get("measured") is True, "live": live, "reason": str(answer.get("reason") or "")}


def _write(folder: "RunFolder", verdict: Mapping[str, Any]) -> str:
    try:
        folder.keep_verdict(verdict)
    except OSError as error:
        return f"verdict.json was not written to {folder.path}: {error.strerror or error}"
    return ""


def _keep_records(run: "Run", folder: "RunFolder") -> None:
    count = 0

    def counted(lines: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal count
        for line in lines:
            count += 1
            yield line

    try:
        load = Load(run.configuration, run.secrets)
        load.sending()  # answers within a second or not at all; the records of a long run may take many
        folder.keep_records(counted(load.records(run.id)))
        reason = ""
    except (ChaosMMError, OSError) as error:
        reason = str(error)
    folder.events.write("kept", what="records", count=count, reason=reason)


def _keep_samples(run: "Run", folder: "RunFolder") -> list[dict[str, Any]]:
    """Of every proxy that held a lease of this run; one that knows no samples, or is gone, has none."""
    urls = {url: None for held in run.leases.values() if held.point == "proxy" for url in held.urls}
    found: list[Mapping[str, Any]] = []
    reasons = []
    for url in urls:
        try:
            answer = open_client(url, run.secrets, _SAMPLES_SECONDS).get("/samples", owner=run.id)
            found += [one for one in answer["samples"] if isinstance(one, Mapping)]
            lost = answer.get("lost")
            reasons += [f"{url} could not show {lost} of them"] if lost else []
        except ChaosMMError as error:
            reasons.append(f"no samples from {url}: {error}")
        except (AttributeError, KeyError, TypeError):
            reasons.append(f"{url} answers /samples, but not as a proxy does")
    kept = []
    try:
        kept = folder.keep_samples(found)
    except OSError as error:
        reasons.append(f"{folder.path}: {error.strerror or error}")
    if urls:
        folder.events.write("kept", what="samples", count=len(kept), reason="; ".join(reasons))
    return kept


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
