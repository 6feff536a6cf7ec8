"""Strict JSON out of anything: what leaves an activity must survive any JSON reader and hide no bytes."""

import math
import sys
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

_MAX_TEXT = 1 << 16  # an activity's output is a summary; a payload has no place in a journal


def strict(value: Any) -> Any:
    """A copy made of dict, list, str, int, finite float, bool and None only.

    NaN and infinities become their names, bytes their length, tuples lists; of anything else only its type is said,
    since a repr may hold content.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
    if isinstance(value, Mapping):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(v) for v in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    return f"<{type(value).__name__}>"


def is_value(output: Any, tolerance: Any = None) -> bool:
    """Whether a probe gave something that its tolerance can be asked about without crashing the run.

    None, NaN and infinities never are. A range wants a number (or a text of one), also in the object under ``target``;
    a pair wants a number; a pattern wants text; a ``target`` wants an object. What any other tolerance makes of a value
    is left to it.
    """
    if output is None or (isinstance(output, float) and not math.isfinite(output)):
        return False
    if isinstance(tolerance, list) and len(tolerance) == 2:
        by_status = isinstance(output, Mapping) and "status" in output
        return by_status or _compares(output, tolerance)
    kind = tolerance.get("type") if isinstance(tolerance, Mapping) else None
    if kind not in ("range", "regex", "jsonpath"):
        return True
    aim = tolerance.get("target")
    if kind == "jsonpath" or (aim and not isinstance(output, Mapping)):
        return not aim or isinstance(output, Mapping)
    value = output.get(aim, output) if aim else output
    return isinstance(value, str) if kind == "regex" else _is_decimal(value)


def _compares(value: Any, bounds: list[Any]) -> bool:
    try:
        return isinstance(bounds[0] <= value <= bounds[1], bool)
    except TypeError:
        return False


def _is_decimal(value: Any) -> bool:
    """Whether the toolkit's range can take it: it makes a Decimal of it, and compares with one that is a number."""
    if isinstance(value, str):
        try:
            return Decimal(value).is_finite() or not Decimal(value).is_nan()
        except InvalidOperation:
            return True  # the toolkit finds it out of range by itself
    return is_number(value) or isinstance(value, (bool, Decimal))


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
