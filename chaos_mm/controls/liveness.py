"""Whether the service under test truly generates, beside what its ``/health`` says; asked past every proxy of ours.

A server whose engine hangs may go on saying that it is well: vLLM's ``/health`` answers while a worker is stuck, and
so does any server whose API runs apart from its model. So both are watched at once, on one clock.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos_mm.control.timed import without_credentials
from chaos_mm.controls import exposition, target
from chaos_mm.controls.code_picture import data_uri
from chaos_mm.controls.measuring import no_data
from chaos_mm.controls.signals import deaf

__all__ = ["Attempt", "Glance", "alive", "lie_seconds", "lies", "progress", "progress_of"]

PERIOD_SECONDS = 0.2  # between two looks at /health, and at least between two attempts to generate
_HEALTH_SECONDS = 1.0
_METRICS_SECONDS = 1.0
_RUNNING = "vllm:num_requests_running"
_TOKENS = ("vllm:generation_tokens_total", "vllm:iteration_tokens_total_sum")
Stopped = Callable[[float], bool]


@dataclass(frozen=True)
class Attempt:
    """One try to generate: when it began (monotonic seconds), and whether it was answered."""

    began: float
    answered: bool


@dataclass(frozen=True)
class Glance:
    """One look at ``/health``: when (monotonic seconds), and whether it said that all is well."""

    at: float
    fine: bool


def alive(
    url: str, model: str, modality: str, timeout: float, secrets: Mapping[str, Any] | None
) -> tuple[bool, dict[str, Any]]:
    """(whether one short question was answered with text, the probe's answer with ``exact`` and ``health``)."""
    code = f"{random.SystemRandom().randrange(10_000):04d}"
    began = time.monotonic()
    try:
        text, why = target.complete(url, model, _question(modality, code), timeout, secrets), ""
    except OSError as error:
        text, why = "", str(error) or type(error).__name__
    took = time.monotonic() - began
    told = {"exact": "".join(filter(str.isdigit, text)) == code, "answer_seconds": round(took, 3)}
    reason = why or ("" if text else f"{without_credentials(url)} generated nothing")
    answer = {**no_data(reason, "ratio"), "measured": True, "value": float(bool(text)), "samples": 1}
    return bool(text), {**answer, **told, "modality": modality, "url": without_credentials(url)}


def _question(modality: str, code: str) -> str | list[dict[str, Any]]:
    if modality == "text":
        return f"repeat the code {' '.join(code)}"
    asked = {"type": "text", "text": "what is the code in the picture?"}
    return [{"type": "image_url", "image_url": {"url": data_uri(code)}}, asked]


def lies(
    attempt: Callable[[], bool], glance: Callable[[], bool], window_seconds: float, stopped: Stopped
) -> dict[str, Any]:
    """Try to generate and look at ``/health`` for a window, side by side; ``value``: seconds in which it lied.

    ``stopped(seconds)`` waits so long and says whether the run is to stop, as ``Event.wait`` does.
    """
    began = time.monotonic()
    ends = began + window_seconds
    glances: list[Glance] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(glance, glances, done), name="chaos-mm-health", daemon=True)
    watcher.start()
    attempts = []
    while (at := time.monotonic()) < ends:
        attempts.append(Attempt(at, attempt()))
        if stopped(max(0.0, min(ends, at + PERIOD_SECONDS) - time.monotonic())):
            break
    over = min(ends, time.monotonic())
    done.set()
    watcher.join(_HEALTH_SECONDS + 0.5)
    looked = list(glances)
    return {
        **no_data("" if looked and attempts else "nothing could be asked within the window", "s", over - began),
        "measured": bool(looked and attempts),
        "value": lie_seconds(attempts, looked, over),
        "samples": len(looked),
        "generated": sum(one.answered for one in attempts),
        "attempts": len(attempts),
        "health_fine": sum(one.fine for one in looked),
    }


def _watch(glance: Callable[[], bool], glances: list[Glance], done: threading.Event) -> None:
    deaf()
    while not done.is_set():
        at = time.monotonic()
        fine = glance()
        glances.append(Glance(at, fine))
        done.wait(max(0.0, at + PERIOD_SECONDS - time.monotonic()))


def lie_seconds(attempts: Sequence[Attempt], glances: Sequence[Glance], ends: float) -> float:
    """Seconds up to ``ends`` in which the last look at ``/health`` found it fine and no try to generate was answered.

    What a look or a try found holds from its beginning to the beginning of the next.
    """
    silent = [(a, b) for (a, b), one in _spans([one.began for one in attempts], attempts, ends) if not one.answered]
    fine = [(a, b) for (a, b), one in _spans([one.at for one in glances], glances, ends) if one.fine]
    return math.fsum(max(0.0, min(b, d) - max(a, c)) for a, b in silent for c, d in fine)


def _spans(begins: Sequence[float], found: Sequence[Any], ends: float) -> list[tuple[tuple[float, float], Any]]:
    following = [*begins[1:], ends] if begins else []
    return [((a, min(b, ends)), one) for a, b, one in zip(begins, following, found, strict=True)]


def progress(url: str, window_seconds: float, stopped: Stopped) -> dict[str, Any]:
    """As ``progress_of`` what the target's ``/metrics`` shows over a window."""
    began = time.monotonic()
    ends = began + window_seconds
    seen = []
    while True:
        try:
            text = target.metrics(url, _METRICS_SECONDS)
        except OSError as error:
            return no_data(str(error) or type(error).__name__, "ratio", time.monotonic() - began)
        seen.append((exposition.first_known(text, _RUNNING), exposition.first_known(text, *_TOKENS)))
        left = ends - time.monotonic()
        if left <= 0 or stopped(min(PERIOD_SECONDS, left)):
            return progress_of(seen, time.monotonic() - began)


def progress_of(seen: Sequence[tuple[float | None, float | None]], window_seconds: float) -> dict[str, Any]:
    """``value`` 1 where tokens grew, 0 where requests ran at every look and none did; of (running, tokens) pairs.

    Where at some look nothing ran and no token came, there is no data: an idle engine has nothing to get on with.
    """
    nothing = no_data("", "ratio", window_seconds)
    running, counts = [one for one, _ in seen if one is not None], [one for _, one in seen if one is not None]
    if len(counts) < 2 or len(counts) < len(seen) or len(running) < len(seen):
        return {**nothing, "reason": f"its /metrics must show {_RUNNING} and {' or '.join(_TOKENS)}, twice or more"}
    tokens = counts[-1] - counts[0]
    told = {"tokens": tokens, "running": min(running), "samples": len(seen)}
    if tokens < 0:
        return {**nothing, **told, "reason": "its counters went back: another process answers now"}
    if tokens == 0 and min(running) <= 0:
        return {**nothing, **told, "reason": "nothing ran, so nothing could get on"}
    stalled = f"{min(running):g} requests or more ran, and no token came" if tokens == 0 else ""
    return {**nothing, **told, "measured": True, "value": float(tokens > 0), "reason": stalled}
