"""Prometheus' text format, as far as probes read it: the samples of one metric, whatever their labels.

Format: https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
"""

import math
import re

__all__ = ["first_known", "samples"]


def samples(text: str, name: str) -> list[float]:
    """Every finite sample of exactly this name, in order; empty where the server has none."""
    pattern = rf"^{re.escape(name)}(?:\{{[^\n]*\}})?[ \t]+([^\s]+)(?:[ \t]+-?[0-9]+)?[ \t]*$"
    return [value for found in re.finditer(pattern, text, re.MULTILINE) if (value := _number(found[1])) is not None]


def first_known(text: str, *names: str) -> float | None:
    """The sum over the labels of the first of these metrics that the server has; None where it has none."""
    for name in names:
        found = samples(text, name)
        if found:
            return math.fsum(found)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
