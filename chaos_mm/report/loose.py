"""Reading JSON that anybody may have written or cut: every question has an answer of the right type.

Text is made fit for a page, an XML file and a terminal: control characters, lone surrogates and the characters that
turn the reading direction of what follows become U+FFFD. Numbers that are not finite, or beyond 1e30, are no numbers.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["flag", "items", "mapping", "number", "parse", "text", "whole"]

_LIMIT = 1e30
# Not fit for XML 1.0, not encodable, or able to reorder or hide what stands around them.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_DECODER = json.JSONDecoder(
    parse_constant=lambda _: None,
    object_pairs_hook=lambda pairs: {_UNFIT.sub("\ufffd", name): told for name, told in pairs},
)

_FAST_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def parse(data: bytes) -> Any:
    """The JSON value in ``data``. Raises ValueError, with a short reason, and nothing else."""
    written = data.decode("utf-8", "replace")
    # Names need cleaning only where something unfit stands, as it is or escaped; a log of hours is read four times as
    # fast without.
    decoder = _DECODER if "\\u" in written or _UNFIT.search(written) else _FAST_DECODER
    try:
        return decoder.decode(written)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(str(error)[:200]) from None


def text(value: Any, default: str = "") -> str:
    """A string as it is but for unfit characters; a number or truth value as JSON writes it; else ``default``."""
    if isinstance(value, str):
        return _UNFIT.sub("\ufffd", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    found = number(value)
    return default if found is None else str(value) if isinstance(value, int) else f"{found:g}"


def number(value: Any) -> float | None:
    """A finite number of at most 1e30, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -_LIMIT <= value <= _LIMIT else None


def whole(value: Any, default: int = 0) -> int:
    """A whole number from 0 to 1e30, or ``default``."""
    found = number(value)
    return default if found is None or found < 0 else int(value)


def flag(value: Any) -> bool:
    """True for true alone."""
    return value is True


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """An array, or an empty one."""
    return value if isinstance(value, list) else []
