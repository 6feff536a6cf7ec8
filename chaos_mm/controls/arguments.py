"""The verdict control's own arguments: read strictly, since Chaos Toolkit hands them to every hook unseen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaoslib import substitute

from chaos_mm.controls.declared import holds_variable
from chaos_mm.controls.names import LOAD_RATE, text_of
from chaos_mm.controls.strict import is_number
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.params import ParamSpec
from chaos_mm.report.words import WORDS

__all__ = ["Arguments", "check"]

_RATE = ParamSpec("load_rate", float, 0.0, "requests a second that the load sends while idle", ge=0, le=1000)
_NAMES = ("exit_code", "expect", "load_rate", "min_achieved")


@dataclass(frozen=True)
class Arguments:
    """``load_rate``: requests a second that the load sends for this run when it is idle; 0: leave it alone.

    ``expect``: the word that this run should end with, for whoever reads its verdict; it changes nothing here.
    ``min_achieved``: least mean of what a fault achieved, by name. ``exit_code``: whether ``chaos run`` ends with the
    verdict's status.
    """

    load_rate: float = 0.0
    expect: str = ""
    min_achieved: Mapping[str, float] = field(default_factory=dict)
    exit_code: bool = True

    @classmethod
    def read(cls, given: Mapping[str, Any], configuration: Any, secrets: Any) -> "Arguments":
        """With variables substituted. Raises InvalidParams naming the argument, what was given and what is allowed."""
        known = substitute({**given}, configuration, secrets) if configuration or secrets else {**given}
        check(known)
        rate = _RATE.check(known.get("load_rate") or text_of(LOAD_RATE, configuration))
        least = {str(name): float(value) for name, value in (known.get("min_achieved") or {}).items()}
        return cls(rate, known.get("expect") or "", least, known.get("exit_code", True))


def check(given: Mapping[str, Any]) -> None:
    """Raise InvalidParams for an argument that is unknown or out of bounds; a value with a variable is judged later."""
    unknown = sorted(set(given) - set(_NAMES))
    if unknown:
        listed = ", ".join(repr(name) for name in unknown)
        raise InvalidParams(f"unknown argument {listed}; it takes {', '.join(repr(name) for name in _NAMES)}")
    for name, value in given.items():
        if not holds_variable(value) and not _allowed(name, value):
            raise InvalidParams(f"{name}={value!r} is not allowed; it must be {_ALLOWED[name]}")


def _allowed(name: str, value: Any) -> bool:
    if name == "exit_code":
        return isinstance(value, bool)
    if name == "expect":
        return value in ("", None, *WORDS)
    if name == "min_achieved":
        return value is None or _is_bounds(value)
    try:
        _RATE.check(value or 0.0)
    except ValueError:
        return False
    return True


def _is_bounds(value: Any) -> bool:
    return isinstance(value, Mapping) and all(is_number(one) or holds_variable(one) for one in value.values())


_ALLOWED = {
    "exit_code": "true or false",
    "expect": f"one of {', '.join(WORDS)}",
    "load_rate": "a number in [0, 1000]",
    "min_achieved": "an object of names and numbers",
}
