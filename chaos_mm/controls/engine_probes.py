"""Probes of an engine's inside and of the service's life; ``chaos_mm.probes`` lists them."""

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from chaoslib.types import Configuration, Secrets

from chaos_mm.control.timed import without_credentials
from chaos_mm.controls import exposition, inside, liveness
from chaos_mm.controls import run as live
from chaos_mm.controls import target as service
from chaos_mm.controls.declared import Answer, activity
from chaos_mm.controls.measuring import no_data
from chaos_mm.controls.names import ANSWER_SECONDS, TARGET_MODEL, TARGET_URL, text_of
from chaos_mm.controls.outcome import ACTION_SECONDS
from chaos_mm.core.errors import ChaosMMError, InvalidParams
from chaos_mm.core.fault import Param

__all__ = [
    "agent_loaded",
    "alignment_cosine",
    "attention_collapse",
    "attention_entropy",
    "device_memory",
    "embedding_shift_sigma",
    "forward_progress",
    "generation_alive",
    "health_lie_seconds",
    "host_memory",
    "kv_cache_hit_ratio",
    "kv_cache_usage",
    "nonfinite_count",
]

_probe = functools.partial(activity, unable=no_data)
_SITE = Param("one layer or module, as the answer's 'sites' name them; empty: the worst of all")
_MODALITY = Param("what is asked: 'text', or 'image' for a small picture with a code")
_TIMEOUT = Param("for one answer", ge=0.1, le=60, unit="s")
_WINDOW_SLACK_SECONDS = 2.0  # for the last look to come back

_DEVICE: Mapping[str, tuple[str, str, Callable[[Iterable[float]], float]]] = {
    "used": ("used_bytes", "bytes", max),
    "free": ("free_bytes", "bytes", min),
    "largest_block": ("largest_free_block_bytes", "bytes", min),
    "utilisation": ("utilisation_ratio", "ratio", max),
}
_HOST: Mapping[str, tuple[str, str, Callable[[Iterable[float]], float]]] = {
    "available": ("available_bytes", "bytes", min),
    "group_available": ("group_available_bytes", "bytes", min),
    "total": ("total_bytes", "bytes", min),
}
_COLLAPSE = {
    "vanished_heads": "attention_vanished_heads_ratio",
    "kl": "attention_query_key_kl_nats",
    "max_share": "attention_max_share_ratio",
}
_USAGE_METRICS = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_HITS, _QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


def _in(choices: Iterable[str], name: str, given: str) -> None:
    if given not in choices:
        raise InvalidParams(f"{name}={given[:60]!r} is not allowed; it must be one of {', '.join(map(repr, choices))}")


def _secrets(secrets: Any) -> Any:
    run = live.current()
    return secrets or (run.secrets if run is not None else None)


@_probe(seam=Param("a seam that it must have, such as 'kv' or 'attention'; empty: none"))
def agent_loaded(seam: str = "", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Share of the configured agents that are loaded in an engine, and have the named seam; ``reason``: the rest.

    ``engines``: name, version, runner and the attention backend that is really called, as each of them says.
    """
    return inside.loaded(seam, configuration, _secrets(secrets))


@_probe()
def kv_cache_usage(configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Share of the key-value cache that is in use: as the agent says, else as the target's own metrics do."""
    found = _of_agent("usage_ratio", max, configuration, secrets)
    return found if found["measured"] else _or(found, inside.from_target(_USAGE_METRICS, "ratio", configuration))


@_probe()
def kv_cache_hit_ratio(configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Share of the looked-up prompt tokens that the prefix cache had, since the server began."""
    found = _of_agent("hit_ratio", min, configuration, secrets)
    return found if found["measured"] else _or(found, _hit_ratio(configuration))


def _of_agent(fact: str, worst: Callable[[Iterable[float]], float], configuration: Any, secrets: Any) -> dict[str, Any]:
    try:
        return inside.said("kv", fact, "ratio", worst, configuration, _secrets(secrets))
    except ChaosMMError as error:
        return no_data(str(error), "ratio")


def _or(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return second if second["measured"] else {**second, "reason": f"{first['reason']}; {second['reason']}"}


def _hit_ratio(configuration: Any) -> dict[str, Any]:
    try:
        text = service.metrics(text_of(TARGET_URL, configuration), ANSWER_SECONDS / 2)
    except OSError as error:
        return no_data(str(error) or type(error).__name__, "ratio")
    hits, queries = exposition.first_known(text, _HITS), exposition.first_known(text, _QUERIES)
    if hits is None or not queries:
        return no_data(f"its /metrics shows no {_QUERIES}, or nothing was looked up yet", "ratio")
    return {**no_data("", "ratio"), "measured": True, "value": hits / queries, "samples": int(queries)}


@_probe(
    lambda arguments: float(arguments["timeout_seconds"]) + ACTION_SECONDS,
    modality=_MODALITY,
    timeout_seconds=_TIMEOUT,
)
def generation_alive(
    modality: str = "text", timeout_seconds: float = 5.0, configuration: Configuration = None, secrets: Secrets = None
) -> Answer:
    """1 when the service under test truly answers one short question now, else 0 and why.

    Asked directly, not through the proxy, with a code of its own each time; ``exact`` says whether that code came
    back, ``health`` what ``/health`` said at the same time.
    """
    _in(("text", "image"), "modality", modality)
    url, model = text_of(TARGET_URL, configuration), text_of(TARGET_MODEL, configuration)
    said: list[bool] = []
    asking = threading.Thread(target=lambda: said.append(service.healthy(url, timeout_seconds)), daemon=True)
    asking.start()
    _, answer = liveness.alive(url, model, modality, timeout_seconds, _mapping(secrets))
    asking.join(ACTION_SECONDS)
    return {**answer, "health": said[0] if said else False}


@_probe(
    lambda arguments: float(arguments["window_seconds"]) + float(arguments["timeout_seconds"]) + _WINDOW_SLACK_SECONDS,
    modality=_MODALITY,
    timeout_seconds=_TIMEOUT,
    window_seconds=Param("how long both are watched", ge=0.5, le=600, unit="s"),
)
def health_lie_seconds(
    modality: str = "text",
    window_seconds: float = 5.0,
    timeout_seconds: float = 1.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> Answer:
    """Seconds within a window from now in which ``/health`` said fine while no question was answered in time.

    The probe itself watches, side by side: ``/health`` five times a second, and short questions one after another,
    each given ``timeout_seconds``. What either found holds until it is asked again. It ends early when the run stops.
    """
    _in(("text", "image"), "modality", modality)
    url, model = text_of(TARGET_URL, configuration), text_of(TARGET_MODEL, configuration)
    found = liveness.lies(
        lambda: liveness.alive(url, model, modality, timeout_seconds, _mapping(secrets))[0],
        lambda: service.healthy(url, ACTION_SECONDS),
        window_seconds,
        _wait(),
    )
    return {**found, "url": without_credentials(url)}


@_probe(
    lambda arguments: float(arguments["window_seconds"]) + _WINDOW_SLACK_SECONDS,
    window_seconds=Param("no token for so long, while something runs, is a stall", ge=0.5, le=600, unit="s"),
)
def forward_progress(
    window_seconds: float = 3.0, configuration: Configuration = None, secrets: Secrets = None
) -> Answer:
    """1 when tokens came within the window, 0 when requests ran all the while and none did; "no data" when idle.

    Read from the target's own ``/metrics``, under vLLM's names: ``vllm:num_requests_running`` and
    ``vllm:generation_tokens_total``. A counter that a server writes at the end of a request only needs a longer window.
    """
    return liveness.progress(text_of(TARGET_URL, configuration), window_seconds, _wait())


def _wait() -> liveness.Stopped:
    run = live.current()
    return run.stop.wait if run is not None else threading.Event().wait


def _mapping(secrets: Any) -> Mapping[str, Any] | None:
    return secrets if isinstance(secrets, Mapping) else None


@_probe(figure=Param("'used', 'free', 'largest_block' (the largest free one) or 'utilisation'"))
def device_memory(figure: str = "free", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Memory of the device that the engine runs on, in bytes, or its utilisation (0 to 1), as the agent says.

    What no agent says of used and free bytes, the host point's NVML may: of the worst device that it sees.
    """
    _in(_DEVICE, "figure", figure)
    fact, unit, worst = _DEVICE[figure]
    try:
        found = inside.said("memory", fact, unit, worst, configuration, _secrets(secrets))
    except ChaosMMError as error:
        found = no_data(str(error), unit)
    if found["measured"] or figure not in ("free", "used"):
        return found
    return _or(found, inside.device_fact(fact, unit, worst, configuration, _secrets(secrets)))


@_probe(figure=Param("'available', 'group_available' (below the limit of a control group) or 'total'"))
def host_memory(figure: str = "available", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Memory of the machine in bytes, as the host point says; what is available an agent can say, too."""
    _in(_HOST, "figure", figure)
    fact, unit, worst = _HOST[figure]
    try:
        found = inside.host_fact(fact, unit, worst, configuration, _secrets(secrets))
    except ChaosMMError as error:
        found = no_data(str(error), unit)
    if found["measured"] or figure != "available":
        return found
    return _or(found, inside.said("memory", "host_available_bytes", unit, min, configuration, _secrets(secrets)))


@_probe(site=_SITE)
def nonfinite_count(site: str = "", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Values that are NaN or infinite, as the agent counted them inside the engine; 0 is a clean one."""
    return inside.measure("nonfinite_count", site, sum, configuration, _secrets(secrets))


@_probe(site=_SITE, normalised=Param("as a share of the largest possible, ln n of n positions, instead of nats"))
def attention_entropy(
    site: str = "", normalised: bool = False, configuration: Configuration = None, secrets: Secrets = None
) -> Answer:
    """Entropy of the attention weights, averaged over heads and queries: the lowest of the layers that were looked at.

    Near 0, attention has collapsed onto one position; near ln n (1 when normalised), it looks everywhere alike.
    """
    name = "attention_entropy_ratio" if normalised else "attention_entropy_nats"
    return inside.measure(name, site, min, configuration, _secrets(secrets))


@_probe(site=_SITE, figure=Param("'vanished_heads', 'kl' (queries against keys) or 'max_share'"))
def attention_collapse(
    site: str = "", figure: str = "vanished_heads", configuration: Configuration = None, secrets: Secrets = None
) -> Answer:
    """How far attention has collapsed, at its worst layer.

    ``vanished_heads``: share of the heads that tell no position from another; ``kl``: Kullback-Leibler divergence of
    the distribution of the queries from that of the keys, in nats; ``max_share``: mean of the largest weight of each
    query.
    """
    _in(_COLLAPSE, "figure", figure)
    return inside.measure(_COLLAPSE[figure], site, max, configuration, _secrets(secrets))


@_probe(site=_SITE)
def embedding_shift_sigma(site: str = "", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """How far the mean of what an encoder gives out has moved from the clean reference, in its standard deviations."""
    return inside.measure("embedding_shift_sigma", site, max, configuration, _secrets(secrets))


@_probe(site=_SITE)
def alignment_cosine(site: str = "", configuration: Configuration = None, secrets: Secrets = None) -> Answer:
    """Cosine between what an encoder gives out now and the clean reference of the same modality; 1 is the same."""
    return inside.measure("alignment_cosine", site, min, configuration, _secrets(secrets))
