"""The names everyone shares: configuration key, environment variable, default; and clients for what they name.

A value is taken from the experiment's configuration, else from the environment, else the default. Lists of URLs are
comma-separated; a URL carries the scheme and no path.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.params import ParamSpec

if TYPE_CHECKING:
    from chaos_mm.control.client import ControlClient

__all__ = ["ANSWER_SECONDS", "POINT_NAMES", "Name", "control_urls", "given", "open_client", "phase_length", "text_of"]

ANSWER_SECONDS = 0.9  # an action answers within a second, so what it asks must answer within this


@dataclass(frozen=True)
class Name:
    """One row of the table."""

    key: str
    variable: str
    default: str = ""


TARGET_URL = Name("target_url", "CHAOS_MM_TARGET_URL", "http://127.0.0.1:8600")
TARGET_MODEL = Name("target_model", "CHAOS_MM_TARGET_MODEL", "chaos-mm-tiny")
OBJECTIVES_DIR = Name("objectives_dir", "CHAOS_MM_OBJECTIVES", "experiments/objectives")
LOAD_RATE = Name("load_rate", "CHAOS_MM_LOAD_RATE", "0")
REPORTS_DIR = Name("reports_dir", "CHAOS_MM_REPORTS", "reports")
POINT_NAMES: Mapping[str, Name] = {
    "proxy": Name("proxy_control_url", "CHAOS_MM_PROXY_CONTROL_URL", "http://127.0.0.1:8602"),
    "agent": Name("agent_control_url", "CHAOS_MM_AGENT_CONTROL_URL", "http://127.0.0.1:8603"),
    "host": Name("host_control_url", "CHAOS_MM_HOST_CONTROL_URL", "http://127.0.0.1:8604"),
    "load": Name("load_control_url", "CHAOS_MM_LOAD_CONTROL_URL", "http://127.0.0.1:8605"),
    "kubernetes": Name("kubernetes_control_url", "CHAOS_MM_KUBERNETES_CONTROL_URL"),
}


def given(name: Name, configuration: Mapping[str, Any] | None) -> str | None:
    """What someone set, or None where only the default stands."""
    value = (configuration or {}).get(name.key)
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text or os.environ.get(name.variable) or None


def text_of(name: Name, configuration: Mapping[str, Any] | None) -> str:
    """The value in force."""
    return given(name, configuration) or name.default


def control_urls(point: str, configuration: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Control URLs of a point; empty where none is configured."""
    parts = text_of(POINT_NAMES[point], configuration).split(",")
    return tuple(part.strip().rstrip("/") for part in parts if part.strip())


def open_client(url: str, secrets: Mapping[str, Any] | None, timeout: float = ANSWER_SECONDS) -> "ControlClient":
    """A client of the control API at ``url``; the token is the secret's, else the token file's."""
    from chaos_mm.control.client import ControlClient

    return ControlClient(url, token_of(secrets), timeout=timeout)


def token_of(secrets: Mapping[str, Any] | None) -> str | None:
    """The secret ``chaos_mm.token``: a control is handed every group of secrets, an activity its own, merged."""
    groups = secrets or {}
    inner = groups.get("chaos_mm")
    value = inner.get("token") if isinstance(inner, Mapping) else groups.get("token")
    return value if isinstance(value, str) and value else None


def phase_length(phase: str, configuration: Mapping[str, Any] | None) -> float:
    """Seconds a phase is to last: ``baseline_seconds`` and so on; 0 where nothing is said.

    Raises InvalidParams naming the key, what was given and what is allowed.
    """
    key = f"{phase}_seconds"
    try:
        seconds: float = ParamSpec(key, float, 0.0, "length", ge=0, le=86400, unit="s").check(
            (configuration or {}).get(key, 0.0)
        )
    except ValueError as error:
        raise InvalidParams(f"configuration: {error}") from None
    return seconds
