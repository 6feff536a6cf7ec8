"""One fault, one file: the folder listing is the catalogue, joined by third parties' entry points.

A file ``chaos_mm/faults/<name>.py`` holds one function ``<name>`` declared with ``@fault``. Another distribution adds
its own with an entry point in the group ``chaos_mm.faults`` whose name is the fault's and whose value is the fault.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from chaos_mm.core.errors import UnknownFault
from chaos_mm.core.fault import Fault

__all__ = ["GROUP", "Source", "catalogue", "collect", "files", "get", "third_parties"]
GROUP = "chaos_mm.faults"
Source = tuple[str, str, Any]
"""Where something stands, the name it must have, and what stands there."""


@cache
def catalogue() -> Mapping[str, Fault]:
    """Every fault there is, by name, in alphabetical order; read once a process.

    Raises TypeError naming the file or entry point that breaks the rules of a fault, or two that share a name.
    """
    return collect([*files(__name__), *third_parties(entry_points(group=GROUP))])


def get(name: str) -> Fault:
    """The fault of that name. Raises UnknownFault naming those there are."""
    found = catalogue()
    if name not in found:
        raise UnknownFault(f"no fault {name!r}; there are: {', '.join(found)}")
    return found[name]


def collect(sources: Iterable[Source]) -> Mapping[str, Fault]:
    """A catalogue of these sources, by name. Raises TypeError naming the place that breaks a rule."""
    found: dict[str, Fault] = {}
    places: dict[str, str] = {}
    for place, name, value in sources:
        if not isinstance(value, Fault):
            raise TypeError(f"{place} must hold a fault named {name!r}: a function declared with @fault")
        if value.name != name:
            raise TypeError(f"{place} holds the fault {value.name!r}; its name must be {name!r}")
        if name in places:
            raise TypeError(f"the fault {name!r} stands twice: in {places[name]} and in {place}")
        found[name], places[name] = value, place
    return MappingProxyType(dict(sorted(found.items())))


def files(package: str) -> Iterator[Source]:
    """What stands in each file of a package of faults. Raises TypeError naming a file whose declaration is refused."""
    for module in iter_modules(import_module(package).__path__):
        place = f"{package.replace('.', '/')}/{module.name}.py"
        try:
            loaded = import_module(f"{package}.{module.name}")
        except TypeError as error:  # @fault names the function; whoever wrote it looks for the file
            raise TypeError(f"{place}: {error}") from error
        yield place, module.name, getattr(loaded, module.name, None)


def third_parties(found: Iterable[EntryPoint]) -> Iterator[Source]:
    """What entry points of the group name. Raises TypeError naming one that does not load."""
    for entry in found:
        place = f"entry point {entry.name!r} of {GROUP} ({entry.value})"
        try:
            loaded = entry.load()
        except (ImportError, AttributeError, TypeError) as error:
            raise TypeError(f"{place}: {error}") from error
        yield place, entry.name, loaded
