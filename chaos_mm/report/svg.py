"""SVG elements as escaped text, and linear scales with round ticks."""

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Markup", "Scale", "element", "path", "ticks", "write"]


class Markup(str):
    """Finished markup: a template prints it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        """What Jinja2 asks of text that needs no escaping."""
        return str(self)


def element(tag: str, *children: Markup, **attributes: Any) -> Markup:
    """``<tag …>children</tag>``; attributes are escaped, ``class_`` is class, ``stroke_width`` is stroke-width."""
    pairs = ((name.rstrip("_").replace("_", "-"), told) for name, told in attributes.items() if told is not None)
    written = "".join(f' {name}="{html.escape(_number(told))}"' for name, told in pairs)
    inner = "".join(children)
    return Markup(f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>")


def write(words: str) -> Markup:
    """Text, escaped."""
    return Markup(html.escape(words))


def _number(told: Any) -> str:
    return f"{told:.1f}".removesuffix(".0") if isinstance(told, float) else str(told)


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``low`` … ``high`` to ``start`` … ``end``; what lies outside comes to the nearer end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, told: float) -> float:
        """The place of a value."""
        share = (told - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round numbers (steps of 1, 2 or 5 times a power of ten) within low … high."""
    if high <= low or most < 1:
        return [low]
    step = _step((high - low) / most)
    while math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1 > most:
        step = _step(step * 1.01)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(max(0, count))]


def _step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if step >= least)


def path(points: Iterable[tuple[float, float]]) -> str:
    """The ``d`` of a line through points."""
    return "M" + "L".join(f"{_number(float(x))} {_number(float(y))}" for x, y in points)
