"""Questions from the control thread to vLLM's own event loop, each with a deadline."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from chaos_mm.core.errors import ChaosMMError

__all__ = ["waited"]


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
