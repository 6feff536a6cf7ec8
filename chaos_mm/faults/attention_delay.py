"""Attention that takes longer."""

from math import log
from typing import Annotated, Any, Literal

from chaos_mm.core.engine import NOT_NOW, AttentionCall, Layers, indices
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng

_LONGEST = 10  # times the mean: an exponential delay beyond it, one in 22,000, is cut


@fault(
    Target.ATTENTION,
    dose="seconds",
    presets={i: {"seconds": s} for i, s in enumerate((0.005, 0.02, 0.05, 0.12, 0.5), 1)},
    changes_content=False,
)
def attention_delay(
    call: AttentionCall,
    rng: Rng,
    *,
    seconds: Annotated[float, Param("delay of one call, on average", ge=0, le=30, unit="s")] = 0.05,
    distribution: Annotated[
        Literal["constant", "exponential", "uniform"], Param("the same every time, or drawn for every call")
    ] = "constant",
    jitter: Annotated[float, Param("uniform: at most that share off the average, either way", ge=0, le=1)] = 0.5,
    layers: Layers = "all",
) -> Any:
    """Hold attention calls up before they are launched, as a contended GPU or a slow kernel does.

    Every call of the selected layers is held up once a step, so a step takes seconds times layers longer; the answer
    stays the same. An exponential delay is cut at ten times its mean. A delay ends with the lease at the latest.

    Most engines compute a batch at a time: the delay then reaches every request in it, and the point says so
    (``batch_wide``). Beyond an engine's own limit (vLLM: ``VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS``, 300 s) a delay is
    fatal. Kernels that slow down and stand still under load: flashinfer issues 2939 and 3986. Reports
    ``delay_seconds``, as measured.
    """
    if seconds == 0 or call.layer not in indices(layers, call.layers, "layers"):
        return NOT_NOW
    # A stream of its own for each call: whichever calls of a request come first, each has its own draw.
    drawn = Rng(rng.key(f"{call.output_index} {call.layer}", 32)).random()
    return Outcome(call, {"delay_seconds": call.sleep(seconds * _factor(distribution, jitter, drawn))})


def _factor(distribution: str, jitter: float, drawn: float) -> float:
    if distribution == "exponential":
        return min(-log(1 - drawn), _LONGEST)
    return 1 + jitter * (2 * drawn - 1) if distribution == "uniform" else 1.0
