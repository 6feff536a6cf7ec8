"""Parameters of a fault: declared once with bounds and unit, checked everywhere with the same words."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from chaos_mm.core.errors import InvalidParams

_TYPES = (bool, int, float, str)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_MAX_TEXT = 256  # a parameter is a setting, not a payload


@dataclass(frozen=True)
class Param:
    """The half of a parameter that a type cannot say; stands in ``Annotated[float, Param("…", ge=0, le=1)]``."""

    doc: str
    ge: float | None = None
    le: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class ParamSpec:
    """One parameter as read from the fault's signature."""

    name: str
    type: type
    default: Any
    doc: str
    ge: float | None = None
    le: float | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            return "one of " + ", ".join(repr(c) for c in self.choices)
        unit = f" {self.unit}" if self.unit else ""
        low, high = (_bound(bound) for bound in (self.ge, self.le))
        bounds = f" in [{low or '-inf'}, {high or 'inf'}]{unit}" if low or high else unit
        word = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}[self.type]
        return word + bounds

    def check(self, value: Any) -> Any:
        """The value in its declared type. Raises ValueError with what was given and what is allowed."""
        converted = _convert(self.type, value)
        if converted is None or not self._in_bounds(converted):
            raise ValueError(f"{self.name}={_shown(value)} is not allowed; it must be {self.allowed}")
        return converted

    def _in_bounds(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, str):
            return len(value) <= _MAX_TEXT
        return (self.ge is None or value >= self.ge) and (self.le is None or value <= self.le)

    def schema(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "name": self.name,
            "type": self.type.__name__,
            "default": self.default,
            "doc": self.doc,
            "ge": self.ge,
            "le": self.le,
            "unit": self.unit,
            "choices": list(self.choices),
        }


def _convert(kind: type, value: Any) -> Any:
    """``value`` as ``kind``, or None. Texts from the environment count as numbers; true and false never do."""
    if kind is bool:
        words = {"true": True, "false": False}
        return value if isinstance(value, bool) else words.get(value.lower()) if isinstance(value, str) else None
    if kind is str:
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return _whole(value) if kind is int else _number(value)


def _number(value: int | float | str) -> float | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None  # float() would take "0_1", other scripts' digits and white space
    try:
        number = float(value)
    except OverflowError:
        return None
    underflown = number == 0 and isinstance(value, str) and re.search("[1-9]", value.lower().partition("e")[0])
    return number if math.isfinite(number) and not underflown else None


def _whole(value: int | float | str) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    exact = math.isfinite(value) and value == int(value) and abs(value) <= 2**53
    return int(value) if exact else None


def _bound(bound: float | None) -> str:
    return "" if bound is None else str(bound) if isinstance(bound, int) else f"{bound:g}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def bind(owner: str, specs: Mapping[str, ParamSpec], given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults overlaid with ``given``, each checked. Raises InvalidParams naming ``owner`` and the parameter."""
    unknown = sorted(set(map(str, given)) - set(specs))
    if unknown:
        raise InvalidParams(f"{owner}: unknown parameter {', '.join(map(repr, unknown))}; it takes {_list(specs)}")
    bound = {}
    for name, spec in specs.items():
        try:
            bound[name] = spec.check(given.get(name, spec.default))
        except ValueError as error:
            raise InvalidParams(f"{owner}: {error}") from None
    return bound


def _list(specs: Mapping[str, ParamSpec]) -> str:
    return ", ".join(repr(name) for name in specs) or "none"


def read_params(function: Callable[..., Any]) -> Mapping[str, ParamSpec]:
    """The keyword-only parameters of a fault. Raises TypeError naming function and parameter."""
    hints = inspect.get_annotations(function)
    if any(isinstance(hint, str) for hint in hints.values()):  # resolving is slow, and seldom needed
        hints = get_type_hints(function, include_extras=True)
    specs = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            specs[name] = _read_one(function.__name__, name, parameter.default, hints.get(name))
    return MappingProxyType(specs)


def _read_one(owner: str, name: str, default: Any, hint: Any) -> ParamSpec:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{owner}: parameter {name!r} must be Annotated[type, Param(...)]")
    kind, *extra = get_args(hint)
    declared = [e for e in extra if isinstance(e, Param)]
    if len(declared) != 1 or not declared[0].doc:
        raise TypeError(f"{owner}: parameter {name!r} needs one Param with a description")
    if default is inspect.Parameter.empty:
        raise TypeError(f"{owner}: parameter {name!r} needs a default")
    choices: tuple[str, ...] = ()
    if get_origin(kind) is Literal:
        kind, choices = str, get_args(kind)
    if kind not in _TYPES:
        raise TypeError(f"{owner}: parameter {name!r} must be float, int, bool, str or Literal of texts")
    param = declared[0]
    spec = ParamSpec(name, kind, default, param.doc, param.ge, param.le, param.unit, choices)
    try:
        spec.check(default)
    except ValueError as error:
        raise TypeError(f"{owner}: default of {name!r}: {error}") from None
    return spec
