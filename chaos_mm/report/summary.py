"""``summary.json``: every run of a reports folder in one strict JSON file, described by schema/summary.schema.json."""

from collections.abc import Sequence
from typing import Any

from chaos_mm.report.folder import RunReport
from chaos_mm.report.parts import Window
from chaos_mm.report.telling import worst_windows
from chaos_mm.report.words import highest

__all__ = ["SCHEMA", "summary"]

SCHEMA = 1


def summary(runs: Sequence[RunReport]) -> dict[str, Any]:
    """``{schema, runs, exit_code}``; runs in the order in which they began, exit_code the highest of theirs."""
    return {
        "schema": SCHEMA,
        "runs": [_run(run) for run in runs],
        "exit_code": highest(run.exit_code for run in runs),
    }


def _run(run: RunReport) -> dict[str, Any]:
    hits, recovery = run.hits, run.recovery
    achieved = next((lease.achieved for lease in run.leases), ())
    return {
        "experiment": run.experiment,
        "verdict": run.word,
        "words": list(run.words),
        "reasons": [{"word": one.word, "reason": one.reason} for one in run.reasons],
        "fault": run.fault,
        "hits": {"matched": hits.matched, "applied": hits.applied, "errored": hits.errored},
        "achieved": {
            one.name: {"count": one.count, "mean": one.mean, "min": one.low, "max": one.high} for one in achieved
        },
        "slis": {
            phase: {name: _window(answer) for name, answer in answers.items()}
            for phase, answers in worst_windows(run.objectives).items()
        },
        "recovery_seconds": recovery.value if recovery is not None and recovery.measured else None,
        "exit_code": run.exit_code,
        "expect": run.expect or None,
        "folder": run.folder.name.encode("utf-8", "replace").decode(),
        "started": run.text("started"),
        "duration_seconds": run.duration_seconds,
    }


def _window(answer: Window) -> dict[str, Any]:
    kept = ("measured", "value", "unit", "samples", "met", "reason", "windows", "without_data")
    return {
        **{name: getattr(answer, name) for name in kept},
        "window_seconds": answer.window_seconds,
        "started_seconds": answer.started_seconds,
    }
