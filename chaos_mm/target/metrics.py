"""The target's Prometheus metrics, under vLLM's names (vLLM docs, "Production Metrics"), labelled ``model_name``."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

FINISHED_REASONS = ("stop", "length", "abort", "error")
_TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
_ITL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_E2E_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)


class Metrics:
    """Every metric of one server, in a registry of its own."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # start time, memory and CPU of the process, under the usual names
        self._labels = {"model_name": model_name}

        def histogram(name: str, doc: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"vllm:{name}", doc, ["model_name"], buckets=buckets, registry=self.registry)
            return made.labels(**self._labels)

        def counter(name: str, doc: str) -> Counter:
            return Counter(f"vllm:{name}", doc, ["model_name"], registry=self.registry).labels(**self._labels)

        self.time_to_first_token = histogram("time_to_first_token_seconds", "Time to first token.", _TTFT_BUCKETS)
        self.inter_token_latency = histogram("inter_token_latency_seconds", "Time between two tokens.", _ITL_BUCKETS)
        self.e2e_latency = histogram("e2e_request_latency_seconds", "Arrival to last token.", _E2E_BUCKETS)
        self.queue_time = histogram("request_queue_time_seconds", "Time spent waiting.", _E2E_BUCKETS)
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = counter("generation_tokens", "Tokens generated.")
        self._cache_queries = counter("mm_cache_queries", "Pictures and recordings looked up in the encoder cache.")
        self._cache_hits = counter("mm_cache_hits", "Pictures and recordings found in it.")
        self._finished = Counter(
            "vllm:request_success",
            "Requests by how they ended.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        for reason in FINISHED_REASONS:
            self._finished.labels(**self._labels, finished_reason=reason)

    def count_finished(self, reason: str) -> None:
        """One request more that ended by ``reason``, one of FINISHED_REASONS."""
        self._finished.labels(**self._labels, finished_reason=reason).inc()

    def count_lookup(self, hit: bool) -> None:
        """One medium more that was looked up in the encoder cache."""
        self._cache_queries.inc()
        self._cache_hits.inc(hit)

    def watch_queue(self, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Show these two numbers as ``num_requests_running`` and ``num_requests_waiting``."""
        for name, read in (("running", running), ("waiting", waiting)):
            gauge = Gauge(f"vllm:num_requests_{name}", f"Requests {name}.", ["model_name"], registry=self.registry)
            gauge.labels(**self._labels).set_function(read)

    def text(self) -> bytes:
        """The exposition format, version 0.0.4."""
        return generate_latest(self.registry)
