"""Which objectives a run is held to: those that its file names, and those that guard every run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chaoslib import substitute

from chaos_mm.controls.guards import lifted
from chaos_mm.controls.names import OBJECTIVES_DIR, given
from chaos_mm.controls.rules import activities, injected_fault, injections

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["chosen_objectives", "named_objectives"]


def named_objectives(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> set[str]:
    """Names in the arguments ``objective`` and ``objectives`` of our activities, variables substituted."""
    return set(_names(experiment, configuration, secrets))


def chosen_objectives(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> "tuple[list[Objective], list[Objective]]":
    """(those the file names, those that only guard), in order of name; what a fault of the file does on purpose is no
    guard's business. Raises ChaosMMError for files that are wrong.
    """
    from chaos_mm import faults
    from chaos_mm.sli import objectives

    named = named_objectives(experiment, configuration, secrets)
    known = objectives.load(given(OBJECTIVES_DIR, configuration))
    injected = [faults.get(injected_fault(one)) for one in injections(experiment)]
    known = {name: replace(one, guard=one.guard and not lifted(one, injected)) for name, one in known.items()}
    judged = [known[name] for name in sorted(named & set(known))]
    return judged, [one for name, one in sorted(known.items()) if one.guard and name not in named]


def _names(
    experiment: Mapping[str, Any], configuration: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Iterator[str]:
    for one in activities(experiment):
        if not one["provider"]["module"].startswith("chaos_mm."):
            continue
        arguments = substitute(dict(one["provider"].get("arguments") or {}), configuration, secrets)
        for key in ("objective", "objectives"):
            value = arguments.get(key)
            if isinstance(value, str):
                yield from (name.strip() for name in value.split(",") if name.strip())
