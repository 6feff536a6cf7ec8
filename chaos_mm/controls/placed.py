"""An experiment file as ``chaos-mm lint`` reads it: activities with their places, the configuration as it would be.

Nothing is run and nothing is asked; the environment is an argument.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaoslib import convert_to_type, substitute

from chaos_mm.controls.rules import ACTIONS, injected_fault

__all__ = ["Document", "Placed", "shape_troubles", "variables", "wrong_environment"]

PROBES = "chaos_mm.probes"
TOLERANCES = "chaos_mm.tolerances"
_OURS = ("chaos_mm.actions", PROBES, TOLERANCES)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_LISTS = ("controls", "method", "rollbacks")
_OBJECTS = ("configuration", "secrets", "runtime", "steady-state-hypothesis")


def variables(value: Any) -> set[str]:
    """The names between ``${`` and ``}`` in a text; of anything else none."""
    return set(_VARIABLE.findall(value)) if isinstance(value, str) else set()


@dataclass(frozen=True, eq=False)
class Placed:
    """An activity and its JSON path; ``part``: hypothesis, tolerance, method or rollbacks."""

    part: str
    path: str
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.body.get("name", ""))

    @property
    def provider(self) -> Mapping[str, Any]:
        found = self.body.get("provider")
        return found if isinstance(found, Mapping) else {}

    @property
    def arguments(self) -> Mapping[str, Any]:
        found = self.provider.get("arguments")
        return found if isinstance(found, Mapping) else {}

    @property
    def ours(self) -> bool:
        """Whether chaos_mm does it."""
        return self.provider.get("module") in _OURS

    @property
    def func(self) -> str:
        """Of one of ours; "" for any other."""
        return str(self.provider.get("func", "")) if self.ours else ""

    @property
    def fault(self) -> str:
        """What it injects; "" when it does not."""
        return injected_fault(self.body)

    def is_action(self, *names: str) -> bool:
        """Whether it is one of these actions of ours."""
        return self.provider.get("module") == ACTIONS and self.func in names


@dataclass
class Document:
    """``configuration``: what the toolkit would make of it in this environment; ``open``: names whose value only the
    run will know; ``unconverted``: by key, what the environment holds that is not of the type the file asks for."""

    experiment: Mapping[str, Any]
    placed: list[Placed] = field(default_factory=list)
    configuration: dict[str, Any] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    unconverted: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, experiment: Mapping[str, Any], environment: Mapping[str, str]) -> "Document":
        """Of a file whose shape is right (``shape_troubles``)."""
        made = cls(experiment, list(_placed(experiment)))
        for group in (experiment.get("secrets") or {}).values():
            made.open |= set(group) if isinstance(group, Mapping) else set()
        for key, value in (experiment.get("configuration") or {}).items():
            made._resolve(str(key), value, environment)
        return made

    def _resolve(self, key: str, value: Any, environment: Mapping[str, str]) -> None:
        if not (isinstance(value, Mapping) and "type" in value):
            self.configuration[key] = value
            return
        given = environment.get(str(value.get("key")), value.get("default"))
        if value["type"] != "env" or given is None:
            self.open.add(key)
            return
        try:
            self.configuration[key] = convert_to_type(value.get("env_var_type"), given)
        except (ValueError, TypeError):
            self.unconverted[key] = (
                f"${value.get('key')} is {str(given)[:40]!r}, which is no {value.get('env_var_type')}"
            )
            self.open.add(key)

    @property
    def ours(self) -> list[Placed]:
        """The activities of chaos_mm."""
        return [one for one in self.placed if one.ours]

    @property
    def injections(self) -> list[Placed]:
        """Those that inject."""
        return [one for one in self.placed if one.fault]

    def within(self, *parts: str) -> list[Placed]:
        """The activities of some parts of the file, in order."""
        return [one for one in self.placed if one.part in parts]

    def value(self, given: Any) -> Any:
        """With its variables put in, as far as they are known."""
        return substitute(given, self.configuration, {}) if isinstance(given, str) else given

    def lease(self, one: Placed) -> str:
        """The lease that an activity of ours makes or names."""
        return str(self.value(one.arguments.get("lease")) or one.fault)

    def number(self, given: Any, otherwise: float) -> float:
        """A value as a number where it is known by now; else ``otherwise``."""
        try:
            return float(self.value(given))
        except (TypeError, ValueError):
            return otherwise


def wrong_environment(experiment: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """What in the environment would crash the toolkit as it reads the configuration, in words."""
    configuration = experiment.get("configuration")
    if not isinstance(configuration, Mapping):
        return []
    return [*Document.read({"configuration": configuration}, environment).unconverted.values()]


def _placed(experiment: Mapping[str, Any]) -> Iterator[Placed]:
    probes = (experiment.get("steady-state-hypothesis") or {}).get("probes") or []
    for number, probe in enumerate(probes):
        path = f"steady-state-hypothesis.probes[{number}]"
        yield Placed("hypothesis", path, probe)
        tolerance = probe.get("tolerance")
        if isinstance(tolerance, Mapping) and tolerance.get("type") == "probe":
            yield Placed("tolerance", f"{path}.tolerance", tolerance)
    for part in ("method", "rollbacks"):
        for number, one in enumerate(experiment.get(part) or []):
            yield Placed(part, f"{part}[{number}]", one)


def shape_troubles(experiment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, what it must be) of everything that is not the list or object that the toolkit expects there."""
    for key in _OBJECTS:
        if not isinstance(experiment.get(key) or {}, Mapping):
            yield key, "an object"
    hypothesis = experiment.get("steady-state-hypothesis")
    lists = {key: experiment.get(key) for key in _LISTS}
    if isinstance(hypothesis, Mapping):
        lists["steady-state-hypothesis.probes"] = hypothesis.get("probes")
    for path, found in lists.items():
        if not isinstance(found or [], list):
            yield path, "a list"
            continue
        for number, one in enumerate(found or []):
            yield from _entry_troubles(f"{path}[{number}]", one)


def _entry_troubles(path: str, one: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(one, Mapping):
        yield path, "an object"
        return
    for key in ("provider", "pauses"):
        if not isinstance(one.get(key, {}), Mapping):
            yield f"{path}.{key}", "an object"
    provider = one.get("provider")
    if not isinstance(provider, Mapping):
        provider = {}
    if provider.get("type") == "python" and not isinstance(provider.get("arguments", {}), Mapping):
        yield f"{path}.provider.arguments", "an object"
    tolerance = one.get("tolerance")
    if isinstance(tolerance, Mapping) and tolerance.get("type") == "probe":
        yield from _entry_troubles(f"{path}.tolerance", tolerance)
