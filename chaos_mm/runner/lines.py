"""A run that is over as one line, and several as a table."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos_mm.runner.planned import Ended
from chaos_mm.runner.progress import SIGNS

__all__ = ["line", "table", "worst"]

_PHASES = ("fault", "recovery", "baseline")  # of equals the first is named
_CUT_SHORT = frozenset({"interrupted", "halted", "not_applied"})  # a phase that was cut short owes no data


def line(ended: Ended) -> str:
    """Experiment, word, hits, worst objective, folder."""
    hits = _hits(ended.verdict)
    facts = [ended.planned.name, _word(ended), hits and f"hits {hits}", worst(ended.verdict), _short(ended.folder)]
    return "  ".join(fact for fact in facts if fact)


def table(ended: Sequence[Ended], expectations: bool = True) -> list[str]:
    """One row a run, under a heading; columns as wide as they must be, those with nothing in them left out.
    ``expectations``: whether each run was held to a word."""
    heading = ("experiment", "verdict", "as expected", "hits", "worst objective", "recovered in")
    rows = [_row(one, expectations) for one in ended]
    columns = [(title, *cells) for title, *cells in zip(heading, *rows, strict=True) if any(cells)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def worst(verdict: Mapping[str, Any]) -> str:
    """The judged objective that had least of its room left, or was furthest beyond its bound, in any phase; "" when
    none was judged."""
    found = sorted(_rooms(verdict), key=lambda one: one[0])
    return found[0][1] if found else ""


def _rooms(verdict: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    listed, cut = verdict.get("objectives"), verdict.get("verdict") in _CUT_SHORT
    for objective in listed if isinstance(listed, list) else []:
        if not isinstance(objective, Mapping) or objective.get("named") is False:
            continue
        phases = objective.get("phases") or {}
        for phase in _PHASES:
            answer = phases.get(phase)
            if isinstance(answer, Mapping) and (answer.get("measured") is True or not cut):
                yield _in_phase(objective, phase, answer)


def _in_phase(objective: Mapping[str, Any], phase: str, answer: Mapping[str, Any]) -> tuple[float, str]:
    """The room it had left, and the words for it; no data is worst of all."""
    name, bound = objective.get("name"), float(objective.get("threshold") or 0.0)
    if answer.get("measured") is not True:
        return float("-inf"), f"{name} no data in {phase}"
    value, comparison = float(answer.get("value") or 0.0), str(objective.get("comparison", "gte"))
    said = f"{name} {value:.3g} ({SIGNS.get(comparison, '')} {bound:g}) in {phase}"
    return _room(comparison, value, bound), said


def _room(comparison: str, value: float, bound: float) -> float:
    """1: nothing of the error budget is used, 0: all of it, below: more. The budget of a ratio lies between its bound
    and 1, of what is to stay small between 0 and its bound (a bound of 0 has none: every one is one too many)."""
    if comparison in ("gte", "gt"):
        return (value - bound) / (1 - bound if bound < 1 else bound)
    return (bound - value) / bound if bound > 0 else 1.0 - value


def _row(ended: Ended, expectations: bool) -> tuple[str, ...]:
    verdict = ended.verdict
    expected = ("yes" if ended.as_expected else f"no: {ended.expected}") if expectations else ""
    name = " ".join([ended.planned.name, *_vars(ended.planned.options)])
    return name, ended.said, expected, _hits(verdict), worst(verdict), _seconds(verdict.get("recovery_seconds"))


def _vars(options: Sequence[str]) -> Iterator[str]:
    words = iter(options)
    for word in words:
        if word == "--var":
            yield next(words, "")
        elif word.startswith("--var="):
            yield word.removeprefix("--var=")


def _word(ended: Ended) -> str:
    return ended.said if ended.as_expected or not ended.planned.expect else f"{ended.said} (expected {ended.expected})"


def _hits(verdict: Mapping[str, Any]) -> str:
    hits = verdict.get("hits")
    if not isinstance(hits, Mapping) or not verdict.get("leases"):
        return ""
    return f"{hits.get('applied', '?')}/{hits.get('matched', '?')}"


def _seconds(answer: Any) -> str:
    if not isinstance(answer, Mapping) or answer.get("measured") is not True:
        return ""
    return f"{float(answer.get('value') or 0.0):.1f} s"


def _short(folder: Path) -> str:
    """Relative to where we are, where that is shorter to type."""
    near = os.path.relpath(folder)
    return near if len(near) < len(str(folder)) else str(folder)
