"""Attention that never returns."""

from typing import Annotated, Any

from chaos_mm.core.attention import BeginAt, count, meant, open_requests
from chaos_mm.core.engine import NOT_NOW, AttentionCall, Layers
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng

_SLICE = 0.25  # seconds slept at a time
_ENDED = 0.9  # of a slice: who slept less was woken by the end of the lease


@fault(Target.ATTENTION, changes_content=False)
def attention_hang(
    call: AttentionCall,
    rng: Rng,
    *,
    longest_seconds: Annotated[float, Param("give up by itself after", ge=0.1, le=3600, unit="s")] = 600.0,
    after_tokens: BeginAt = 0,
    layers: Layers = "0",
) -> Any:
    """Hold one attention call up until the lease ends: a kernel that never comes back.

    What it looks like from outside: the device is busy or idle, no token comes, nothing is logged, and the health
    endpoint still answers 200 (flashinfer issues 2939 and 3986, vLLM issue 39863). The whole engine stands still, not
    this request alone. With the release it goes on where it stood, and the answer is the same. Beyond an engine's own
    limit (vLLM: ``VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS``, 300 s) the engine ends itself: a hang must be shorter, or it
    is fatal. A request hangs once. Reports ``held_seconds``.
    """
    hanging = open_requests(call, 1) if meant(call, layers, after_tokens) else []
    if not hanging:
        return NOT_NOW
    count(call, hanging)
    held, ended = 0.0, False
    while not ended and held < longest_seconds:
        asked = min(_SLICE, longest_seconds - held)
        slept = call.sleep(asked)
        held, ended = held + slept, slept < _ENDED * asked
    return Outcome(call, {"held_seconds": held})
