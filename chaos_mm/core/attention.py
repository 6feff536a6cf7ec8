"""What the faults on attention calls share: which calls are meant, and how often a request was struck already."""

from collections.abc import Iterable
from typing import Annotated

from chaos_mm.core.engine import AttentionCall, indices
from chaos_mm.core.params import Param

__all__ = ["BeginAt", "count", "meant", "open_requests"]

BeginAt = Annotated[int, Param("begin at this output token; 0: with the prompt", ge=0, le=100_000, unit="tokens")]
_KEPT = 4096  # requests whose count is remembered; no batch is as large


def meant(call: AttentionCall, layers: str, after_tokens: int) -> bool:
    """Whether the call is of a selected layer and that far on. Raises InvalidParams as ``indices`` does."""
    return call.output_index >= after_tokens and call.layer in indices(layers, call.layers, "layers")


def open_requests(call: AttentionCall, times: int) -> list[str]:
    """Those of the call's requests that were struck fewer than so many times in this lease."""
    struck: dict[str, int] = call.state.setdefault("struck", {})
    return [request for request in call.requests if struck.get(request, 0) < times]


def count(call: AttentionCall, requests: Iterable[str]) -> int:
    """One strike more for each; the most that any of them has now."""
    struck: dict[str, int] = call.state.setdefault("struck", {})
    most = 0
    for request in requests:
        struck[request] = struck.pop(request, 0) + 1  # whoever was counted last stands last
        most = max(most, struck[request])
    for request in list(struck)[:-_KEPT]:
        del struck[request]
    return most
