"""Tolerances: they judge a probe's answer, fail closed, never raise, and say in the log what they compared.

A probe's answer is ``{"measured", "value", "unit", "samples", "window_seconds", "reason"}``; a bare finite number will
do as well. Whatever else comes (nothing, NaN, a text, an exception's remains) is not within tolerance.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Dict  # noqa: UP035 - the spelling that discovery of chaoslib 1.44 can show

from chaoslib.types import Configuration, Secrets

from chaos_mm.controls.names import OBJECTIVES_DIR, given

__all__ = ["at_least", "at_most", "between", "measured", "within_objective"]

logger = logging.getLogger("chaostoolkit")
_NOTHING: Dict[str, Any] = {}  # noqa: UP006


def within_objective(
    objective: str,
    value: Dict[str, Any] = _NOTHING,  # noqa: UP006
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> bool:
    """Whether the answer meets the named objective: threshold and minimum samples are the objective's."""
    from chaos_mm.sli import objectives

    try:
        found = objectives.load(given(OBJECTIVES_DIR, configuration)).get(str(objective))
    except Exception as error:  # whatever such a file holds, a tolerance that raised would crash the whole run
        return _told(False, f"{objective}: {error}")
    if found is None:
        return _told(False, f"no objective is named {objective!r}")
    judgement = found.judge(value)
    return _told(judgement.met, judgement.reason)


def at_least(
    threshold: float,
    value: Dict[str, Any] = _NOTHING,  # noqa: UP006
    min_samples: int = 0,
) -> bool:
    """Whether the value is ``threshold`` or more, from ``min_samples`` or more."""
    return between(threshold, math.inf, value, min_samples)


def at_most(
    threshold: float,
    value: Dict[str, Any] = _NOTHING,  # noqa: UP006
    min_samples: int = 0,
) -> bool:
    """Whether the value is ``threshold`` or less, from ``min_samples`` or more."""
    return between(-math.inf, threshold, value, min_samples)


def between(
    low: float,
    high: float,
    value: Dict[str, Any] = _NOTHING,  # noqa: UP006
    min_samples: int = 0,
) -> bool:
    """Whether the value lies in [low, high], from ``min_samples`` or more."""
    bottom, top, least = _number(low, infinite=True), _number(high, infinite=True), _number(min_samples)
    if bottom is None or top is None or least is None:
        return _told(False, f"bounds {low!r:.40}, {high!r:.40}, {min_samples!r:.40} are not numbers")
    found, why = _measured(value, least)
    if found is None:
        return _told(False, why)
    return _told(bottom <= found <= top, f"{found:.6g}, allowed is [{bottom:g}, {top:g}]")


def measured(
    value: Dict[str, Any] = _NOTHING,  # noqa: UP006
    min_samples: int = 0,
) -> bool:
    """Whether there is a value at all, from ``min_samples`` or more."""
    least = _number(min_samples)
    if least is None:
        return _told(False, f"min_samples {min_samples!r:.40} is no number")
    found, why = _measured(value, least)
    return _told(found is not None, why or f"measured {found:.6g}")


def _measured(value: Any, min_samples: float) -> tuple[float | None, str]:
    """(the finite number, "") or (None, why there is none)."""
    if not isinstance(value, Mapping):
        number = _told_number(value)
        if number is not None and min_samples > 0:
            return None, f"no data: a bare number tells no samples, at least {min_samples:g} needed"
        return number, "" if number is not None else f"no data: {type(value).__name__} is no answer"
    if value.get("measured") is not True:
        return None, f"no data: {value.get('reason') or 'nothing was measured'!s:.200}"
    number, samples = _told_number(value.get("value")), _told_number(value.get("samples", 0))
    if number is None:
        return None, "no data: the value is not a finite number"
    if min_samples > 0 and (samples is None or samples < min_samples):
        return None, f"no data: {samples or 0:g} samples, at least {min_samples:g} needed"
    return number, ""


def _told_number(value: Any) -> float | None:
    """A finite number as a probe tells it: text is no number there."""
    return None if isinstance(value, str) else _number(value)


def _number(value: Any, infinite: bool = False) -> float | None:
    """A bound as a float, from text too since variables may come as text; None for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) or (infinite and not math.isnan(number)) else None


def _told(met: bool, why: str) -> bool:
    logger.info(f"tolerance {'met' if met else 'not met'}: {why}")
    return met
