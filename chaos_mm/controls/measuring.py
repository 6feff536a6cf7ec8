"""What the load point is asked: phase marks, SLIs, traffic."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from chaos_mm.controls.names import ANSWER_SECONDS, OBJECTIVES_DIR, control_urls, given, open_client
from chaos_mm.controls.strict import is_number
from chaos_mm.core.errors import BadRequest, ChaosMMError, PointUnreachable

if TYPE_CHECKING:
    from chaos_mm.sli.objectives import Objective

__all__ = ["Load", "answer", "no_data", "question"]

WORST_SECONDS = 5.0  # for an hour-long phase the load needs up to half a second, and its machine may be busy
RECORDS_SECONDS = 60.0  # an hour of records is some 30 MB
_RECOVERY = "recovery_seconds"


def no_data(reason: str, unit: str = "", window_seconds: float = 0.0) -> dict[str, Any]:
    """A probe's answer that says why there is nothing to judge."""
    return {
        "measured": False,
        "value": 0.0,
        "unit": unit,
        "samples": 0,
        "window_seconds": window_seconds,
        "reason": reason,
    }


class Load:
    """The first load point of the configuration. Every method raises ChaosMMError when it cannot be had."""

    def __init__(
        self,
        configuration: Mapping[str, Any] | None,
        secrets: Mapping[str, Any] | None,
        timeout: float = ANSWER_SECONDS,
    ) -> None:
        urls = control_urls("load", configuration)
        if not urls:
            raise PointUnreachable("no load point is configured (load_control_url, CHAOS_MM_LOAD_CONTROL_URL)")
        self.url, self._secrets = urls[0], secrets
        self._client = open_client(self.url, secrets, timeout)

    def mark(self, run: str, phase: str) -> None:
        """From now on requests belong to that phase of the run.

        Asked twice where the first answer does not come, as the load marks a phase but once: without its mark what the
        fault does would count to the phase before.
        """
        try:
            self._client.put(f"/marks/{run}/{phase}", {})
        except PointUnreachable:
            self._client.put(f"/marks/{run}/{phase}", {})

    def slis(self, run: str, phase: str, **filters: Any) -> dict[str, dict[str, Any]]:
        """Every SLI's answer by name."""
        found = self._object("/slis", run=run, phase=phase, **_set(filters)).get("slis")
        return {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}

    def sli(self, name: str, run: str, phase: str, **filters: Any) -> dict[str, Any]:
        """One SLI's answer. Raises BadRequest where the load knows no such SLI.

        ``recovery_seconds`` looks at every window of every objective, so it may take as long as ``worst``; the deadline
        of an activity holds all the same.
        """
        if name == _RECOVERY:
            client = open_client(self.url, self._secrets, WORST_SECONDS)
            return self._checked(client.get(f"/slis/{name}", run=run, phase=phase, **_set(filters)), f"/slis/{name}")
        return self._object(f"/slis/{name}", run=run, phase=phase, **_set(filters))

    def worst(self, objective: "Objective", run: str, phase: str, timeout: float = WORST_SECONDS) -> dict[str, Any]:
        """The objective's worst whole window within a phase: its measurement with ``windows``, ``without_data``,
        ``started_seconds`` (when it began within the phase), ``phase_seconds``, ``settled_seconds`` (how much of the
        phase is decided) and ``open`` (its requests without an answer); it is final once those are the phase and 0.

        It may take the load longer than other answers, hence a timeout of its own. ``recovery_seconds`` has one window,
        the recovery; raises BadRequest for it in any other phase.
        """
        if objective.sli == _RECOVERY:
            return self._recovery(objective, run, phase)
        worse = "low" if objective.comparison in ("gte", "gt") else "high"
        own = {"window_seconds": objective.window_seconds, "min_samples": objective.min_samples, "worse": worse}
        client = open_client(self.url, self._secrets, timeout)
        return self._checked(
            client.get(f"/worst/{objective.sli}", run=run, phase=phase, **own, **objective.filters), "/worst"
        )

    def _recovery(self, objective: "Objective", run: str, phase: str) -> dict[str, Any]:
        if phase != "recovery":
            raise BadRequest(f"{objective.name}: {_RECOVERY} is measured in the phase 'recovery', not in {phase!r}")
        found = self.sli(_RECOVERY, run, phase)
        seconds = found.get("window_seconds", 0.0)
        only = {"windows": 1, "without_data": int(found.get("measured") is not True), "started_seconds": 0.0}
        return {**found, **only, "phase_seconds": seconds, "settled_seconds": seconds}

    def records(self, run: str, timeout: float = RECORDS_SECONDS) -> Iterator[bytes]:
        """Every record of the run that the load still has, a JSON object each, in the order in which they ended."""
        return _lines(open_client(self.url, self._secrets, timeout).text("/records", run=run))

    def sending(self) -> bool:
        """Whether any traffic flows."""
        return bool(self._object("/status").get("sending"))

    def start(self, owner: str, rate: float, mix: str, ttl_seconds: float, keepalive_seconds: float) -> dict[str, Any]:
        """Start or renew the traffic of an owner, ``rate`` requests a second."""
        body: dict[str, Any] = {"rate": rate, "ttl_seconds": ttl_seconds, "keepalive_seconds": keepalive_seconds}
        if mix:
            body["mix"] = mix
        return dict(self._client.put(f"/traffic/{owner}", body))

    def stop(self, owner: str) -> None:
        """Stop the traffic of an owner; gone is success."""
        self._client.delete(f"/traffic/{owner}")

    def _object(self, path: str, **query: Any) -> dict[str, Any]:
        return self._checked(self._client.get(path, **query), path)

    def _checked(self, found: Any, path: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise PointUnreachable(f"{self.url} answers {path}, but not as a load does")
        return found


def _lines(text: str) -> Iterator[bytes]:
    """One at a time: hours of records are 70 MB, and a list of them would be as much again."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if end > at:
            yield text[at:end].encode()
        at = end + 1


def _set(filters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in filters.items() if v not in ("", 0, 0.0, None)}


def question(objective: str, name: str, configuration: Mapping[str, Any] | None, **filters: str) -> dict[str, Any]:
    """What to ask the load: ``{"sli", "window_seconds", filters…}``. Raises BadRequest for an unknown objective."""
    from chaos_mm.sli import objectives

    chosen = {k: v for k, v in filters.items() if v}
    if not objective:
        if not name:
            raise BadRequest("name an SLI or an objective")
        return {"sli": name, **chosen}
    known = objectives.load(given(OBJECTIVES_DIR, configuration))
    found = known.get(objective)
    if found is None:
        raise BadRequest(f"no objective is named {objective!r}; there are {', '.join(sorted(known))}")
    return {"sli": found.sli, "window_seconds": found.window_seconds, **found.filters, **chosen}


def answer(
    asked: Mapping[str, Any], run: str, phase: str, configuration: Mapping[str, Any] | None, secrets: Any
) -> dict[str, Any]:
    """The load's answer to a question, or "no data" with the reason when it cannot be had."""
    filters = {k: v for k, v in asked.items() if k != "sli"}
    nothing = no_data("the load answered something else", window_seconds=float(asked.get("window_seconds", 0.0)))
    try:
        found = Load(configuration, secrets).sli(asked["sli"], run, phase, **filters)
    except ChaosMMError as error:
        return {**nothing, "reason": f"the load did not answer: {error}"}
    complete = found.get("measured") is not True or is_number(found.get("value"))
    return {**nothing, **{k: v for k, v in found.items() if k in nothing}} if complete else nothing
