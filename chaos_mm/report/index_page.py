"""What the page over all runs shows, as plain values for its template."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from chaos_mm.report.folder import RunReport
from chaos_mm.report.telling import dosed, expectation, hit, telling_objective, tone, trail
from chaos_mm.report.wording import bound, clipped, duration, moment, name_of
from chaos_mm.report.words import MEANINGS, WORDS, highest

__all__ = ["page"]


def page(runs: Sequence[RunReport]) -> dict[str, Any]:
    """The template's variables; newest run first."""
    counts = Counter(run.word for run in runs)
    return {
        "count": len(runs),
        "totals": [(name_of(word), tone(word), counts[word]) for word in reversed(WORDS) if counts[word]],
        "exit_code": highest(run.exit_code for run in runs),
        "unexpected": sum(bool(run.expect) and run.expect != run.word for run in runs),
        "meanings": [(name_of(word), MEANINGS[word]) for word in reversed(WORDS) if counts[word]],
        "runs": [_card(run) for run in reversed(runs)],
    }


def _card(run: RunReport) -> dict[str, Any]:
    wanted, came = expectation(run)
    return {
        "href": f"{quote(os.fsencode(run.folder.name), safe='')}/index.html",
        "title": clipped(run.title, 120),
        "experiment": clipped(run.experiment, 80),
        "started": moment(run.text("started")),
        "word": name_of(run.word),
        "tone": tone(run.word),
        "meaning": MEANINGS[run.word],
        "reason": next((clipped(one.reason, 240) for one in run.reasons if one.reason), ""),
        "facts": [(name, told) for name, told in _facts(run) if told],
        "expected": name_of(wanted),
        "as_expected": came,
        "trail": _trail(run),
    }


def _facts(run: RunReport) -> list[tuple[str, str]]:
    return [
        ("Fault", dosed(run) or "none"),
        ("Requests changed", f"{hit(run.hits)} selected" if run.leases else "none"),
        ("Duration", duration(run.duration_seconds)),
        ("Exit code", str(run.exit_code)),
    ]


def _trail(run: RunReport) -> dict[str, Any] | None:
    """The most telling objective's worst windows, phase by phase."""
    one = telling_objective(run.objectives)
    if one is None:
        return None
    unit = next((answer.unit for answer in one.phases.values() if answer.unit), "")
    return {"name": clipped(one.name, 60), "bound": bound(one, unit), "steps": trail(one)}
