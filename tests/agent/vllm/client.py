"""Speaks to a vLLM server as its users do: chat answers with token ids and log probabilities, pictures, metrics."""

import base64
import http.client
import io
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from chaos_mm.core.canary import canary_id, canary_key, new_run_id

__all__ = ["Answer", "Canaries", "Client", "Metrics", "first_change", "picture", "together"]


@dataclass(frozen=True)
class Answer:
    """One chat answer. ``ids``, ``logprobs``: of the output tokens, empty unless ``status`` is 200."""

    status: int
    seconds: float
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    text: str = ""
    finish: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""


@dataclass
class Canaries:
    """Makes request ids that every point holding ``token`` takes for canaries of the run ``run``."""

    token: str = field(repr=False)
    run: str = field(default_factory=new_run_id)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> str:
        """A fresh id."""
        return canary_id(canary_key(self.token), self.run, next(self._numbers))


class Metrics(dict[str, float]):
    """Samples by ``name`` (summed over labels) and by ``name{label="value",...}``."""

    @classmethod
    def parse(cls, text: str) -> "Metrics":
        """Of the Prometheus text format."""
        found = cls()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                full, _, value = line.rpartition(" ")
                name = full.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
                if full != name:
                    found[full] = float(value)
        return found

    def where(self, name: str, *labels: str) -> float:
        """Sum of the samples of ``name`` whose labels hold every one of ``labels``, such as ``reason="capacity"``."""
        keys = [k for k in self if k.startswith(name + "{") and all(label in k for label in labels)]
        return sum(self[k] for k in keys)


@dataclass(frozen=True)
class Client:
    """A client of one server; one connection a call."""

    url: str
    model: str = "tiny"

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 120
    ) -> tuple[int, bytes]:
        """Status and body. Raises OSError or http.client.HTTPException when the server is gone."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def chat(
        self,
        text: str,
        *,
        tokens: int = 32,
        request_id: str = "",
        images: Sequence[str] = (),
        timeout: float = 120,
        **fields: Any,
    ) -> Answer:
        """A greedy answer of exactly ``tokens`` tokens; ``images`` are data URLs and stand before the text."""
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
        content = [*parts, {"type": "text", "text": text}] if images else text
        asked = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": True,
            "return_token_ids": True,
            **fields,
        }
        begin = time.monotonic()
        headers = {"X-Request-Id": request_id} if request_id else {}
        status, body = self.call("POST", "/v1/chat/completions", asked, headers, timeout)
        return _answer(status, body, time.monotonic() - begin)

    def metrics(self) -> Metrics:
        """Everything at /metrics."""
        return Metrics.parse(self.call("GET", "/metrics")[1].decode())

    def healthy(self, timeout: float = 2.0) -> bool:
        """Whether /health answers 200 in time."""
        try:
            return self.call("GET", "/health", timeout=timeout)[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def _answer(status: int, body: bytes, seconds: float) -> Answer:
    if status != 200:
        return Answer(status, seconds, error=body.decode(errors="replace")[:1000])
    found = json.loads(body)
    choice, usage = found["choices"][0], found["usage"]
    return Answer(
        status=status,
        seconds=seconds,
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(entry["logprob"] for entry in choice["logprobs"]["content"]),
        text=choice["message"]["content"],
        finish=choice["finish_reason"],
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
    )


def together(*calls: Callable[[], Answer]) -> list[Answer]:
    """Start every call at once, each in its thread; the answers in the order of the calls."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def first_change(one: Answer, other: Answer, *, tolerance: float = 1e-4) -> int | None:
    """Index of the first output token whose id or log probability differs by more than ``tolerance``; None: same.

    1e-4: in float32 a request joining the batch alone moves log probabilities by up to 2.4e-6, real damage by 1e-1
    and more (measured on vLLM 0.32.0, CPU).
    """
    assert one.status == other.status == 200, (one, other)
    pairs = zip(zip(one.ids, one.logprobs, strict=True), zip(other.ids, other.logprobs, strict=True), strict=False)
    for index, ((i, p), (j, q)) in enumerate(pairs):
        if i != j or not abs(p - q) <= tolerance:
            return index
    return None if len(one.ids) == len(other.ids) else min(len(one.ids), len(other.ids))


def picture(seed: int, width: int = 100, height: int = 80) -> str:
    """A data URL of a PNG of random blots, other ones for every seed."""
    import numpy as np
    from PIL import Image

    blots = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(blots).resize((width, height), Image.Resampling.NEAREST).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
