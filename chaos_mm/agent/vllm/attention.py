"""One call of one attention layer of a vLLM worker, inside the operator that compiled graphs keep opaque.

The class of the layers' implementation is patched, not a module: torch.compile replaces modules, never this call.
A call computes the whole batch, so holding it up hits every request of the step; only its output has rows of one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "Layer", "Patch", "Span", "read_layers"]

_SLICE_SECONDS = 0.02  # how late a call notices that its lease has ended
Span = tuple[int, int]
"""First token row of a request in the batch, and the one after its last."""


@dataclass(frozen=True)
class Layer:
    """What is known of one decoder layer."""

    index: int
    heads: int
    head_dim: int
    backend: str


def read_layers(context: Mapping[str, Any], names: Sequence[str]) -> dict[str, Layer]:
    """The layers of a key-value cache group by name, numbered as the decoder runs them."""
    ordered = sorted((name for name in names if hasattr(context.get(name), "impl")), key=_numbers)
    return {
        name: Layer(i, context[name].impl.num_heads, context[name].impl.head_size, _backend(context[name]))
        for i, name in enumerate(ordered)
    }


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(word) for word in name.split(".") if word.isdigit())


def _backend(layer: Any) -> str:
    return str(layer.attn_backend.get_name()) if hasattr(layer, "attn_backend") else type(layer.impl).__name__


@dataclass
class Call:
    """``AttentionCall`` for one selected request; vLLM 0.32.0 does not survive an exception here.

    ``began``: when the batch's call was reached, later when its last sleep ended, monotonic seconds; what several
    requests of a batch wait for, they wait together.
    """

    layer: int
    layers: int
    heads: int
    head_dim: int
    output_index: int
    backend: str
    requests: Sequence[str]
    state: dict[str, Any]
    alive: Callable[[], bool]
    began: float = field(default_factory=time.monotonic)
    batch_wide: bool = True
    survives_raise: bool = False
    edits: list[Callable[[Any], Any]] = field(default_factory=list)

    def sleep(self, seconds: float) -> float:
        """See ``AttentionCall.sleep``; the whole batch waits, and waits once for all its selected requests."""
        end = self.began + seconds
        while (left := end - time.monotonic()) > 0 and self.alive():
            time.sleep(min(left, _SLICE_SECONDS))
        held, self.began = time.monotonic() - self.began, time.monotonic()
        return held

    def edit_output(self, change: Callable[[Any], Any]) -> None:
        """See ``AttentionCall.edit_output``; ``change`` is called once for each selected request."""
        self.edits.append(change)

    def finish(self, output: Any, spans: Mapping[str, Span]) -> None:
        """After the call: let the edits change the rows of the selected requests, and no others."""
        for request in self.requests if self.edits else ():
            low, high = spans[request]
            rows = output[low:high].view(high - low, self.heads, self.head_dim)
            for change in self.edits:
                new = change(rows)
                if new is not None:
                    rows.copy_(new)


class Patch:
    """Puts ``around(real, impl, layer, args, kwargs)`` round the forward of every implementation class in use.

    ``armed()``: whether it is asked at all; the call goes straight on where not.
    """

    def __init__(
        self,
        context: Mapping[str, Any],
        names: Sequence[str],
        around: Callable[..., Any],
        armed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._real = {cls: cls.forward for cls in {type(context[name].impl) for name in names}}
        for cls, real in self._real.items():
            cls.forward = _wrapped(real, around, armed)

    def __len__(self) -> int:
        return len(self._real)

    def remove(self) -> None:
        """Every class as it was."""
        for cls, real in self._real.items():
            cls.forward = real
        self._real = {}


def _wrapped(real: Callable[..., Any], around: Callable[..., Any], armed: Callable[[], bool]) -> Callable[..., Any]:
    def forward(impl: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        if armed():
            return around(real, impl, layer, args, kwargs)
        return real(impl, layer, *args, **kwargs)

    return forward
