"""What an agent says of the engine it is in (``GET /agent``), and a host point of its machine (``GET /host``).

Facts that an engine or a machine does not tell are null there and "no data" here, never 0. Several agents are asked in
turn and the worst of their values is the answer: which end is the worse one, each question says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chaos_mm.controls import exposition, target
from chaos_mm.controls.measuring import no_data
from chaos_mm.controls.names import ANSWER_SECONDS, TARGET_URL, control_urls, open_client, text_of
from chaos_mm.controls.strict import is_number
from chaos_mm.core.errors import ChaosMMError, PointUnreachable

__all__ = ["agents", "device_fact", "from_target", "hits_at", "host_fact", "loaded", "measure", "said"]

Worst = Callable[[Iterable[float]], float]


def agents(configuration: Mapping[str, Any] | None, secrets: Any) -> list[dict[str, Any]]:
    """``GET /agent`` of each configured agent. Raises ChaosMMError when one of them does not answer."""
    return _ask("agent", configuration, secrets)


def _ask(point: str, configuration: Mapping[str, Any] | None, secrets: Any) -> list[dict[str, Any]]:
    urls = control_urls(point, configuration)
    if not urls:
        raise PointUnreachable(f"no {point} is configured ({point}_control_url, CHAOS_MM_{point.upper()}_CONTROL_URL)")
    found = []
    for url in urls:
        answer = open_client(url, secrets, ANSWER_SECONDS / len(urls)).get(f"/{point}")
        if not isinstance(answer, dict):
            raise PointUnreachable(f"{url} answers, but not as an {point} does")
        found.append(answer)
    return found


def loaded(seam: str, configuration: Mapping[str, Any] | None, secrets: Any) -> dict[str, Any]:
    """``value``: share of the agents that are loaded (and have ``seam``, where one is named); the reason: the rest."""
    urls = control_urls("agent", configuration)
    troubles: list[str] = []
    engines = []
    for url in urls:
        try:
            facts = open_client(url, secrets, ANSWER_SECONDS / len(urls)).get("/agent")
        except ChaosMMError as error:
            troubles.append(str(error))
            continue
        trouble = _lacks(facts if isinstance(facts, dict) else {}, seam)
        troubles += [f"{url}: {trouble}"] if trouble else []
        engines += [_object(facts, "engine")]
    share = 1.0 - len(troubles) / len(urls) if urls else 0.0
    reason = "; ".join(troubles) or ("" if urls else "no agent is configured")
    return {
        **no_data(reason, "ratio"),
        "measured": bool(urls),
        "value": share,
        "samples": len(urls),
        "engines": engines,
    }


def _lacks(facts: Mapping[str, Any], seam: str) -> str:
    """What this agent lacks to be of use, in words; empty when nothing."""
    if facts.get("loaded") is not True:
        return str(facts.get("reason") or "it is there, but in no engine yet")
    if not seam:
        return ""
    seams = _object(facts, "seams")
    if seam not in seams:
        return f"it has no seam {seam!r}; there are {', '.join(sorted(seams)) or 'none'}"
    state = _object(seams, seam)
    if state.get("available") is True:
        return ""
    return f"seam {seam}: {state.get('reason') or 'not available'}"


def hits_at(found: Mapping[str, Any], site: str) -> dict[str, Any]:
    """The hits of what ``lease_at_points`` found; with a ``site``, how often the fault struck just there."""
    answer = {key: value for key, value in found.items() if key != "lease"}
    sites = _object(found["lease"], "sites")
    answer = {**answer, "sites": dict(sites)} if sites else answer
    if not site or not found["measured"]:
        return answer
    if not sites and answer["value"]:
        return {**answer, "measured": False, "value": 0.0, "reason": "this point does not tell where a fault strikes"}
    where = ", ".join(sorted(sites)) or "nowhere"
    reason = "" if site in sites else f"not at {site!r}; it struck {where}"
    return {**answer, "value": float(sites.get(site, 0)), "unit": "hits", "reason": reason}


def said(
    group: str, fact: str, unit: str, worst: Worst, configuration: Mapping[str, Any] | None, secrets: Any
) -> dict[str, Any]:
    """The worst that the agents say of one fact of a group, such as ("memory", "free_bytes")."""
    return _worst([_object(one, group) for one in agents(configuration, secrets)], fact, unit, worst, "agent")


def host_fact(
    fact: str, unit: str, worst: Worst, configuration: Mapping[str, Any] | None, secrets: Any
) -> dict[str, Any]:
    """The same of what host points say of their machine's memory."""
    found = [_object(one, "memory") for one in _ask("host", configuration, secrets)]
    return _worst(found, fact, unit, worst, "host point")


def device_fact(
    fact: str, unit: str, worst: Worst, configuration: Mapping[str, Any] | None, secrets: Any
) -> dict[str, Any]:
    """The same of the devices that host points see through NVML; "no data" in their words where there are none."""
    hosts = _ask("host", configuration, secrets)
    devices = [one for host in hosts for one in host.get("devices") or [] if isinstance(one, Mapping)]
    if not devices:
        return no_data(str(hosts[0].get("no_device_reason") or "the host point sees no device"), unit)
    return _worst(devices, fact, unit, worst, "host point")


def _worst(groups: Sequence[Mapping[str, Any]], fact: str, unit: str, worst: Worst, who: str) -> dict[str, Any]:
    values = [float(group[fact]) for group in groups if is_number(group.get(fact))]
    silent = len(groups) - len(values)
    if silent:
        return no_data(f"the {who} says no {fact}" + (f" ({silent} of {len(groups)})" if len(groups) > 1 else ""), unit)
    answer = {**no_data("", unit), "measured": True, "value": worst(values), "samples": len(values)}
    device = groups[0].get("device")
    return {**answer, "device": str(device)} if device else answer


def measure(
    name: str, site: str, worst: Worst, configuration: Mapping[str, Any] | None, secrets: Any
) -> dict[str, Any]:
    """What the agents measured inside, by name; ``site`` narrows it to one layer or module, where it is told by site.

    ``samples`` is how often it was measured, summed over what is asked for.
    """
    told: list[Mapping[str, Any]] = []
    for facts in agents(configuration, secrets):
        found = _object(facts, "measures").get(name)
        told += [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, Mapping)]
    chosen = [one for one in told if is_number(one.get("value")) and (not site or one.get("site") == site)]
    if not chosen:
        return no_data(_why_none(name, site, told))
    value = worst(float(one["value"]) for one in chosen)
    samples = sum(int(one.get("samples") or 0) for one in chosen)
    told_sites = sorted({str(one["site"]) for one in chosen if one.get("site")})
    unit = str(chosen[0].get("unit") or "")
    return {**no_data("", unit), "measured": True, "value": value, "samples": samples, "sites": told_sites}


def _why_none(name: str, site: str, told: Sequence[Mapping[str, Any]]) -> str:
    sites = sorted({str(one.get("site")) for one in told if one.get("site")})
    if site and sites:
        return f"the agent measured no {name} at {site!r}; it did at {', '.join(sites)}"
    return f"the agent measured no {name} yet, or its engine does not show it"


def from_target(
    names: Sequence[str], unit: str, configuration: Mapping[str, Any] | None, *, scale: float = 1.0
) -> dict[str, Any]:
    """What the target itself exports under the first of these metric names, summed over labels, times ``scale``."""
    try:
        text = target.metrics(text_of(TARGET_URL, configuration), ANSWER_SECONDS / 2)
    except OSError as error:
        return no_data(str(error) or type(error).__name__, unit)
    value = exposition.first_known(text, *names)
    if value is None:
        return no_data(f"its /metrics shows no {' or '.join(names)}", unit)
    return {**no_data("", unit), "measured": True, "value": value * scale, "samples": 1}


def _object(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}
