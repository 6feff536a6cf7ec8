"""Questions from the control thread to vLLM's own event loop, each with a deadline.

The deadline is ours alone. With a short ``timeout`` of ``collective_rpc`` the engine core would stop waiting, the
worker answer all the same, and vLLM 0.32.0 take its answer for the one to the next call, be it a step: the end of the
engine. So a worker is given what vLLM gives it for a step (``step_seconds``); beyond that the engine ends anyway.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from chaos_mm.core.errors import ChaosMMError

__all__ = ["step_seconds", "waited"]


def step_seconds() -> float:
    """What vLLM gives a step before it ends the engine: the limit of every delay and hang."""
    from vllm import envs

    return float(envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)


def waited(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], seconds: float, who: str) -> Any:
    """What ``work`` comes to in ``loop``; the caller is another thread.

    Raises ChaosMMError naming ``who`` when the answer takes longer than ``seconds``; what the work raises goes on.
    """
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise ChaosMMError(f"{who} did not answer the agent within {seconds:g} s") from None
