"""What the load point is asked: phase marks, SLIs, traffic."""

from collections.abc import Mapping
from typing import Any

from chaos_mm.controls.names import ANSWER_SECONDS, OBJECTIVES_DIR, control_urls, given, open_client
from chaos_mm.controls.strict import is_number
from chaos_mm.core.errors import BadRequest, ChaosMMError, PointUnreachable

__all__ = ["Load", "answer", "no_data", "question"]


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
        self.url = urls[0]
        self._client = open_client(self.url, secrets, timeout)

    def mark(self, run: str, phase: str) -> None:
        """From now on requests belong to that phase of the run."""
        self._client.put(f"/marks/{run}/{phase}", {})

    def slis(self, run: str, phase: str, **filters: Any) -> dict[str, dict[str, Any]]:
        """Every SLI's answer by name."""
        found = self._object("/slis", run=run, phase=phase, **_set(filters)).get("slis")
        return {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}

    def sli(self, name: str, run: str, phase: str, **filters: Any) -> dict[str, Any]:
        """One SLI's answer. Raises BadRequest where the load knows no such SLI."""
        return self._object(f"/slis/{name}", run=run, phase=phase, **_set(filters))

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
        found = self._client.get(path, **query)
        if not isinstance(found, dict):
            raise PointUnreachable(f"{self.url} answers {path}, but not as a load does")
        return found


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
