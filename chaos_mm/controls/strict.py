"""Strict JSON out of anything: what leaves an activity must survive any JSON reader and hide no bytes."""

import math
import sys
from collections.abc import Mapping
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


def is_value(output: Any) -> bool:
    """Whether a probe gave something: not None, NaN or an infinity, at which a range tolerance fails or crashes."""
    return output is not None and not (isinstance(output, float) and not math.isfinite(output))


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
