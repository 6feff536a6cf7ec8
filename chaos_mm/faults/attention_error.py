"""Attention that raises."""

from typing import Annotated, Any, Literal

from chaos_mm.core.attention import BeginAt, count, meant, open_requests
from chaos_mm.core.engine import NOT_NOW, AttentionCall, Layers, Raise
from chaos_mm.core.fault import Effect, Param, Target, fault
from chaos_mm.core.rng import Rng

_BY = "(raised by chaos_mm, attention_error; the device is unhurt)"


@fault(Target.ATTENTION, effect=Effect.RAISES, changes_content=False)
def attention_error(
    call: AttentionCall,
    rng: Rng,
    *,
    kind: Annotated[
        Literal["timeout", "illegal_memory_access", "out_of_memory"], Param("which error leaves the call")
    ] = "illegal_memory_access",
    after_tokens: BeginAt = 0,
    layers: Layers = "0",
) -> Any:
    """Raise out of an attention call, before anything is launched.

    ``timeout`` is a TimeoutError, ``illegal_memory_access`` the RuntimeError with which CUDA reports one (vLLM issues
    7297 and 23814, SGLang issue 8336), ``out_of_memory`` torch's own OutOfMemoryError. The text says that it was
    injected: the device is unhurt, and nothing of a poisoned CUDA context is shown by this. How the engine takes it is
    what is tested. Where an exception in a step ends the engine (vLLM: every request in flight fails, the process
    exits) the point says "restart needed" beforehand, and only a replacement that answers canaries ends the run well.

    Struck once a request. Reports ``raised``.
    """
    struck = open_requests(call, 1) if meant(call, layers, after_tokens) else []
    if not struck:
        return NOT_NOW
    count(call, struck)
    return Raise(_error(kind), {"raised": 1.0})


def _error(kind: str) -> Exception:
    if kind == "timeout":
        return TimeoutError(f"attention timed out {_BY}")
    if kind == "illegal_memory_access":
        return RuntimeError(f"CUDA error: an illegal memory access was encountered {_BY}")
    from torch import OutOfMemoryError

    error: Exception = OutOfMemoryError(f"CUDA out of memory in attention {_BY}")
    return error
