"""The proxy's numbers for Prometheus: names and counts only, nothing of a request's content."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from chaos_mm.proxy.policy import REASONS

_PATHS: Final = {
    "/v1/chat/completions": "chat_completions",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/audio/transcriptions": "audio_transcriptions",
    "/v1/audio/translations": "audio_translations",
    "/v1/models": "models",
    "/health": "health",
    "/metrics": "metrics",
}
_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


def path_class(path: str) -> str:
    """A label of bounded variety."""
    return _PATHS.get(path, "other")


class Metrics:
    """Counters of one proxy, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests by path class and outcome.", "path_class", "outcome")
        self.bytes = self._counter("body_bytes", "Bytes of bodies as framed, by direction.", "direction")
        self.matched = self._counter("matched", "Requests that were read because a live lease might select them.")
        self.applied = self._counter("applied", "Requests that went upstream changed.")
        self.undecodable = self._counter("undecodable", "Bodies or parts that could not be perturbed.", "reason")
        self.samples = self._counter(
            "samples", "Canaries seen before and after, by what became of the pair.", "outcome"
        )
        self.upstream_errors = self._counter("upstream_errors", "How the upstream failed.", "kind")
        self.added = Histogram(
            "chaos_mm_proxy_added_seconds",
            "From having a request (its head; its whole body when matched) to sending it on, connecting included.",
            ("kind",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.connections = self._gauge("connections", "Client connections open.")
        self.in_flight = self._gauge("in_flight", "Requests being served.")
        self.held_bytes = self._gauge("held_bytes", "Bytes of bodies held for decoding.")
        for reason in REASONS:
            self.undecodable.labels(reason)  # a series that starts at zero can be rated from its first count
        for outcome in ("kept", "no_room", "undrawable"):
            self.samples.labels(outcome)

    def text(self) -> str:
        """Prometheus text format."""
        return generate_latest(self.registry).decode()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"chaos_mm_proxy_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"chaos_mm_proxy_{name}", text, registry=self.registry)
