"""``summary.md``: a table for a pull request, GitHub flavoured, without links and without anything that renders."""

import re
from collections.abc import Sequence

from chaos_mm.report.folder import RunReport
from chaos_mm.report.telling import dosed, hit, telling_objective, tone, trail
from chaos_mm.report.wording import bound, clipped, duration, name_of
from chaos_mm.report.words import highest

__all__ = ["markdown"]

_SIGNS = {
    "good": "✅",
    "bad": "❌",
    "open": "⚠️",
    "broken": "🛑",
    "quiet": "➖",
}
_HEADERS = ("experiment", "verdict", "fault", "changed", "worst windows", "recovery", "exit")
# What starts a construct of GitHub flavoured Markdown or HTML, mentions and references (@name, #1, URLs) included.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@$])")
_MOST_ROWS = 200  # GitHub takes 65,536 characters a comment


def markdown(runs: Sequence[RunReport]) -> str:
    """A heading, the table, and under it the first reason of every run that did not pass; runs in their order."""
    shown = list(runs)[-_MOST_ROWS:]
    lines = [
        f"### Chaos: {_totals(runs)}",
        "",
        "| " + " | ".join(_HEADERS) + " |",
        "|" + " --- |" * len(_HEADERS),
        *("| " + " | ".join(_row(run)) + " |" for run in shown),
    ]
    if len(shown) < len(runs):
        lines += ["", f"{len(runs) - len(shown)} earlier runs are not in this table."]
    reasons = [_reason(run) for run in shown if run.word not in ("passed", "dry")]
    return "\n".join([*lines, *([""] if reasons else []), *reasons, "", f"Highest exit code: {_highest(runs)}", ""])


def _highest(runs: Sequence[RunReport]) -> int:
    return highest(run.exit_code for run in runs)


def _totals(runs: Sequence[RunReport]) -> str:
    good = sum(run.word == "passed" for run in runs)
    return f"{good} of {len(runs)} run{'' if len(runs) == 1 else 's'} passed"


def _row(run: RunReport) -> tuple[str, ...]:
    found = run.recovery
    expected = f" (expected {escaped(name_of(run.expect), 30)})" if run.expect and run.expect != run.word else ""
    return (
        escaped(run.experiment, 60),
        f"{_SIGNS[tone(run.word)]} {name_of(run.word)}{expected}",
        escaped(dosed(run), 90) or "none",
        hit(run.hits) if run.leases else "none",
        _worst(run),
        duration(found.value) if found and found.measured else "no data",
        str(run.exit_code),
    )


def _worst(run: RunReport) -> str:
    one = telling_objective(run.objectives)
    if one is None:
        return "none"
    unit = next((answer.unit for answer in one.phases.values() if answer.unit), "")
    steps = " → ".join(f"{value} ({how})" if how else value for _, value, how in trail(one))
    return escaped(f"{clipped(one.name, 60)}: {steps}; needs {bound(one, unit)}", 300)


def _reason(run: RunReport) -> str:
    said = next((one.reason for one in run.reasons if one.reason), "no reason was written down")
    return f"* {escaped(run.experiment, 60)}, {name_of(run.word)}: {escaped(said, 300)}"


def escaped(told: str, length: int) -> str:
    """One line of at most ``length`` characters that a renderer shows as it stands."""
    line = _SPECIAL.sub(r"\\\1", clipped(told, length))
    # A zero-width space keeps addresses from becoming links; nobody has to click what an experiment was titled.
    return re.sub(r"(?i)\b(https?|ftp|mailto|www)([:.])", "\\1\u200b\\2", line)
