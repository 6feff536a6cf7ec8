"""A few plain questions to the service under test, past every proxy of ours, over an OpenAI-compatible API."""

import http.client
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from chaos_mm.control.deadline import ends_at
from chaos_mm.control.timed import connect, without_credentials

__all__ = ["answered", "complete", "healthy", "metrics", "models", "started_at"]

API_KEY_VARIABLE = "CHAOS_MM_TARGET_API_KEY"
_MAX_ANSWER_BYTES = 1 << 20


def models(url: str, timeout: float, secrets: Mapping[str, Any] | None = None) -> list[str]:
    """Names of the models that are served; empty when nothing answers as it should."""
    try:
        status, answer = _exchange(url, "GET", "/v1/models", None, timeout, secrets)
    except OSError:
        return []
    found = answer.get("data") if status == 200 else None
    return [str(m["id"]) for m in found if isinstance(m, dict) and "id" in m] if isinstance(found, list) else []


def answered(url: str, timeout: float) -> int:
    """The HTTP status with which the service lists its models; 0 when nothing answers there."""
    try:
        return _fetch(url, "GET", "/v1/models", None, {}, timeout)[0]
    except (OSError, http.client.HTTPException, ValueError):
        return 0


def healthy(url: str, timeout: float) -> bool:
    """Whether ``/health`` says that all is well: 200, whatever the body, which vLLM leaves empty."""
    try:
        return _fetch(url, "GET", "/health", None, {}, timeout)[0] == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


def metrics(url: str, timeout: float) -> str:
    """What ``/metrics`` shows, in Prometheus' text format. Raises OSError in words where there is none."""
    try:
        status, answer = _fetch(url, "GET", "/metrics", None, {}, timeout)
        text = answer.decode()
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{without_credentials(url)}/metrics: {type(error).__name__}") from None
    if status != 200:
        raise OSError(f"{without_credentials(url)}/metrics answers {status}")
    return text


def started_at(url: str, timeout: float) -> float | None:
    """When the serving process began, in seconds since the epoch, or None where its ``/metrics`` does not say.

    ``process_start_time_seconds`` is what Prometheus' client libraries export, so vLLM, Triton and the demo target do.
    """
    try:
        answer = metrics(url, timeout)
    except OSError:
        return None
    found = re.search(r"^process_start_time_seconds(?:\{[^}]*\})? ([0-9.eE+]+)$", answer, re.MULTILINE)
    try:
        return float(found[1]) if found else None
    except ValueError:
        return None


def complete(
    url: str, model: str, prompt: str | list[dict[str, Any]], timeout: float, secrets: Mapping[str, Any] | None = None
) -> str:
    """The text of one short greedy completion of a text or of message parts. Raises OSError in words without one."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 16,
        "temperature": 0,
    }
    status, answer = _exchange(url, "POST", "/v1/chat/completions", body, timeout, secrets)
    if status != 200:
        raise OSError(f"{without_credentials(url)} answers {status}")
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise OSError(f"{without_credentials(url)} answers 200 without a completion") from None
    return text if isinstance(text, str) else ""


def _exchange(
    url: str, method: str, path: str, body: Any, timeout: float, secrets: Mapping[str, Any] | None
) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **_key(secrets)}
    try:
        status, text = _fetch(url, method, path, data, headers, timeout)
        answer = json.loads(text)
    except (http.client.HTTPException, ValueError) as error:
        at = without_credentials(url)
        raise OSError(f"{at} does not answer as an OpenAI-compatible API: {type(error).__name__}") from None
    return status, answer if isinstance(answer, dict) else {}


def _fetch(
    url: str, method: str, path: str, data: bytes | None, headers: Mapping[str, str], timeout: float
) -> tuple[int, bytes]:
    connection = connect(url, ends_at(timeout))
    try:
        connection.request(method, path, data, dict(headers))
        response = connection.getresponse()
        return response.status, response.read(_MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _key(secrets: Mapping[str, Any] | None) -> dict[str, str]:
    key = (secrets or {}).get("target_api_key") or os.environ.get(API_KEY_VARIABLE, "")
    return {"Authorization": f"Bearer {key}"} if key else {}
