"""Numbers and words as a reader expects them: percent for ratios, units, no digits that say nothing."""

import json
import re
from datetime import datetime
from typing import Any

from chaos_mm.report.loose import number, text
from chaos_mm.report.parts import Achieved, Objective, Window

__all__ = ["achieved", "bound", "clipped", "duration", "moment", "name_of", "plain", "together", "value", "window"]

SIGNS = {"gte": "at least", "gt": "above", "lte": "at most", "lt": "below"}
_UNITS = {"ratio": " %", "s": " s", "1/s": " /s", "": "", "requests": ""}
# The ends of achieved names that are units, as design §7 has it.
_SUFFIXES = {"_db": "dB", "_seconds": "s", "_ms": "ms", "_bytes": "bytes"}
_QUANTITY = re.compile(r"(?<=\d) (?=(?:%|s|dB|ms|min|h|/s)(?:\W|$))")
ELLIPSIS = "…"


def value(amount: float, unit: str, against: float | None = None) -> str:
    """ "98.3 %" of 0.983 ratio, "3.2 s". Where it would read like ``against`` without being it, it gets more digits."""
    for digits in range(1, 7):
        shown = _digits(amount, unit, digits)
        if against is None or amount == against or shown != _digits(against, unit, digits):
            break
    return shown


def _digits(amount: float, unit: str, digits: int) -> str:
    scaled = 100 * amount if unit == "ratio" else amount
    shown = f"{scaled:.{digits}f}" if abs(scaled) < 1e6 else f"{scaled:.{digits + 2}g}"
    shown = shown.rstrip("0").rstrip(".") if "." in shown and "e" not in shown else shown
    return ("0" if shown == "-0" else shown) + _UNITS.get(unit, f" {unit}")


def bound(objective: Objective, unit: str) -> str:
    """ "at least 98 %"."""
    if objective.threshold is None:
        return "no threshold is known"
    return f"{SIGNS.get(objective.comparison, objective.comparison)} {value(objective.threshold, unit)}"


def window(answer: Window, threshold: float | None) -> str:
    """The value of a window, or "no data"."""
    return value(answer.value, answer.unit, threshold) if answer.measured else "no data"


def duration(seconds: float | None) -> str:
    """ "41.2 s", "2 min 5 s", "1 h 3 min"; a dash when it is not known."""
    if seconds is None or seconds < 0:
        return "–"
    if seconds < 90:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(stamp: str) -> str:
    """ "30 November 2026, 09:00:00 UTC" of an ISO time; what is none stays as it is."""
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return clipped(stamp, 40) or "at an unknown time"
    zone = "UTC" if at.utcoffset() is not None and not at.utcoffset() else (at.tzname() or "")
    return f"{at.day} {at:%B %Y, %H:%M:%S} {zone}".rstrip()


def achieved(one: Achieved) -> tuple[str, str]:
    """A name for people and its unit: ("PSNR", "dB") of ``psnr_db``."""
    for suffix, unit in _SUFFIXES.items():
        if one.name.endswith(suffix):
            name = one.name.removesuffix(suffix).replace("_", " ")
            return name.upper() if unit == "dB" else name, unit
    return one.name.replace("_", " "), ""


def together(told: str) -> str:
    """The same text, with no line to begin between a number and its unit."""
    return _QUANTITY.sub("\u00a0", told)


def name_of(word: str) -> str:
    """A verdict word for people: "not exercised"."""
    return word.replace("_", " ")


def plain(told: Any) -> str:
    """Any JSON value in a cell: a text as it is, a number as JSON has it, the rest as compact JSON."""
    if told is None:
        return "none"
    if isinstance(told, (str, bool)) or number(told) is not None:
        return text(told)
    try:
        return text(json.dumps(told, ensure_ascii=False, default=str))
    except (ValueError, RecursionError):  # a whole number too long to be written, or nesting too deep
        return "a value that cannot be shown"


def clipped(told: str, length: int) -> str:
    """At most ``length`` characters on one line, an ellipsis for what is left out."""
    line = " ".join(told[: 4 * length].split())
    return line if len(line) <= length and len(told) <= 4 * length else line[: length - 1].rstrip() + ELLIPSIS
