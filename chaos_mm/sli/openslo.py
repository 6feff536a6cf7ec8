"""The part of an OpenSLO v1 document that objectives use, read strictly: errors name file, key, value, what is allowed.

https://github.com/OpenSLO/OpenSLO, apiVersion openslo/v1.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from chaos_mm.core.errors import BadRequest
from chaos_mm.sli.records import KINDS, MODALITIES

PREFIX = "chaos-mm.io/"
FILTERS: Mapping[str, tuple[str, ...]] = {
    "audience": ("canary", "bystander", "all"),
    "modality": MODALITIES,
    "kind": KINDS,
}
NOTES = ("window-seconds", "min-samples", "hold-seconds", "guard", *FILTERS)
TIMED = ("ttft", "itl", "e2e", "max_gap")  # per-request times: a thresholdMetric on these is a share of requests
_HUGE = 1e15  # beyond it a bound is a slip of the pen, and an int may be beyond a float
_RFC1123 = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Document:
    """One parsed document with its source, for messages."""

    def __init__(self, body: Mapping[str, Any], source: str) -> None:
        self._body, self._source = body, source

    @classmethod
    def parse(cls, text: str, source: str) -> "Document":
        """Read YAML; only an SLO of openslo/v1 passes."""
        import yaml

        try:
            body = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2026-13-45 is a ValueError
            raise BadRequest(f"{source}: not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(body, Mapping):
            raise BadRequest(f"{source}: must be one OpenSLO document, not {type(body).__name__}")
        document = cls(body, source)
        document.word("apiVersion", ("openslo/v1",))
        document.word("kind", ("SLO",))
        document.word("spec.budgetingMethod", ("Occurrences", "Timeslices", "RatioTimeslices"))
        document._known_notes()
        return document

    def name(self) -> str:
        """metadata.name, as RFC 1123 has it."""
        name = self._at("metadata.name")
        if not isinstance(name, str) or not _RFC1123.fullmatch(name):
            raise self._bad("metadata.name", name, "lower-case letters, digits and dashes, at most 63")
        return name

    def description(self) -> str:
        """spec.description in one line, "" without one."""
        found = self._at("spec.description", None)
        return " ".join(found.split()) if isinstance(found, str) else ""

    def word(self, key: str, allowed: Sequence[str]) -> str:
        """The text at a dotted key, which must be one of ``allowed``."""
        value = self._at(key)
        if not isinstance(value, str) or value not in allowed:
            raise self._bad(key, value, ", ".join(allowed))
        return value

    def bound(self, sli: str, *, ratio: bool) -> tuple[str, float, str]:
        """(comparison, threshold, limit in seconds as text or "") from the indicator's metric and its one objective."""
        spec = self._at("spec.indicator.spec")
        metrics = sorted({"ratioMetric", "thresholdMetric"} & set(spec)) if isinstance(spec, Mapping) else []
        if len(metrics) != 1:
            raise self._bad("spec.indicator.spec", metrics, "exactly one of ratioMetric, thresholdMetric")
        objective = self._objective()
        target = self._number(objective, "target", low=0.0, below=1.0)
        if metrics == ["ratioMetric"]:
            if not ratio or sli in TIMED:
                raise self._bad("spec.indicator.spec", "ratioMetric", f"thresholdMetric, for {sli}")
            return "gte", target, ""
        op = objective.get("op")
        if op not in ("gte", "gt", "lte", "lt"):
            raise self._bad("spec.objectives[0].op", op, "gte, gt, lte, lt")
        value = self._number(objective, "value")
        if sli not in TIMED:
            return str(op), value, ""
        if op not in ("lte", "lt"):
            raise self._bad("spec.objectives[0].op", op, f"lte, lt, for {sli}")
        return "gte", target, f"{value:g}"

    def filters(self) -> dict[str, str]:
        """The annotations that choose records."""
        return {key: self._note(key, allowed) for key, allowed in FILTERS.items() if PREFIX + key in self._notes()}

    def note_number(self, key: str, default: float, *, low: float) -> float:
        """An annotation that is a number written as text."""
        value = self._notes().get(PREFIX + key)
        if value is None:
            return default
        if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or float(value) < low:
            raise self._bad(f"metadata.annotations.{PREFIX}{key}", value, f'a number in quotes, at least "{low:g}"')
        return float(value)

    def note_flag(self, key: str) -> bool:
        """An annotation that is "true" or "false"; false without one."""
        return PREFIX + key in self._notes() and self._note(key, ("true", "false")) == "true"

    def _note(self, key: str, allowed: Sequence[str]) -> str:
        value = self._notes().get(PREFIX + key)
        if not isinstance(value, str) or value not in allowed:
            raise self._bad(f"metadata.annotations.{PREFIX}{key}", value, ", ".join(f'"{word}"' for word in allowed))
        return value

    def _known_notes(self) -> None:
        for key in self._notes():
            if str(key).startswith(PREFIX) and str(key).removeprefix(PREFIX) not in NOTES:
                allowed = ", ".join(PREFIX + note for note in NOTES)
                raise self._bad("metadata.annotations", key, allowed)

    def _notes(self) -> Mapping[str, Any]:
        notes = self._at("metadata.annotations", None)
        if notes is None:
            return {}
        if not isinstance(notes, Mapping):
            raise self._bad("metadata.annotations", notes, "an object")
        return notes

    def _objective(self) -> Mapping[str, Any]:
        found = self._at("spec.objectives")
        if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], Mapping):
            raise self._bad("spec.objectives", found, "a list of exactly one objective")
        return found[0]

    def _number(self, objective: Mapping[str, Any], key: str, low: float = -math.inf, below: float = math.inf) -> float:
        value = objective.get(key)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not low <= value < below
            or abs(value) > _HUGE
        ):
            raise self._bad(f"spec.objectives[0].{key}", value, f"a number in [{low:g}, {below:g})")
        return float(value)

    def _at(self, key: str, *default: object) -> Any:
        found: Any = self._body
        for part in key.split("."):
            if not isinstance(found, Mapping) or part not in found:
                if default:
                    return default[0]
                raise BadRequest(f"{self._source}: {key} is missing")
            found = found[part]
        return found

    def _bad(self, key: str, value: object, allowed: str) -> BadRequest:
        return BadRequest(f"{self._source}: {key} is {value!r:.80}; allowed: {allowed}")
