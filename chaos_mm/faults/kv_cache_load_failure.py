"""Stored blocks that do not come back."""

from typing import Annotated, Any

from chaos_mm.core.engine import KvLoad
from chaos_mm.core.fault import Outcome, Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.KV_CACHE, seam=Seam.KV_LOAD)
def kv_cache_load_failure(
    load: KvLoad,
    rng: Rng,
    *,
    declared: Annotated[bool, Param("whether the engine is told that the load failed")] = True,
    delay_seconds: Annotated[float, Param("how long the load takes before it fails", ge=0, le=60, unit="s")] = 0.0,
) -> Any:
    """Load nothing of a request's prompt from the store of key-value blocks, and say so to the engine or not.

    ``declared``: the engine knows. vLLM then recomputes the request or fails it alone, by ``kv_load_failure_policy``
    (vLLM pull request 19330); the other requests go on. Not declared is the silent kind: the request answers from
    blocks that hold something else, with status 200, and what the prefix cache keeps of it stays wrong until it is
    flushed (vLLM issue 45704, a missing synchronisation; LMCache issue 4385). A delay holds up the step, and with it
    whatever is computed beside the request.

    Needs a KV connector in the engine, named at its start. Struck once a request. Reports ``tokens``, those not loaded.
    """
    load.fail(declared=declared, delay_seconds=delay_seconds)
    return Outcome(load, {"tokens": float(load.tokens)})
