"""The endpoint plugin of vLLM: starts the agent's control point in the API server, on a port of its own.

vLLM loads it where ``VLLM_PLUGINS`` names it, in the API server only. It adds no route to the server: the control point
has its own address, its own token and its own thread.
"""

import asyncio
import atexit
import logging
from typing import Any, Final

from chaos_mm.agent.control import AgentPoint, make_board, start_agent
from chaos_mm.agent.vllm import gate

__all__ = ["Endpoint"]

logger = logging.getLogger("chaos_mm.agent")


class Endpoint:
    """Entry point of the group ``vllm.endpoint_plugins``; made once an API server."""

    name: Final = "chaos_mm"
    required_tasks: Final = ("generate",)

    def __init__(self) -> None:
        """Nothing is served before ``init_state``."""
        self.point: AgentPoint | None = None

    def attach_router(self, app: Any) -> None:
        """vLLM's HTTP server stays as it is."""

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """The engine is up: serve the control point, if the agent is enabled. Never raises."""
        if not gate.enabled() or engine_client is None:
            return
        if why := gate.refusal():
            logger.error("chaos_mm agent is not served: %s", why)
            return
        _be_heard()
        try:
            self.point = await _serve(engine_client)
        except Exception:  # whatever vLLM has moved, its server must start
            logger.exception("chaos_mm agent is not served")
        if self.point is not None:
            atexit.register(self.point.close)


def _be_heard() -> None:
    """vLLM's server sets the root logger to errors only; where the agent listens is worth a line in its log."""
    ours = logging.getLogger("chaos_mm")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.WARNING)


async def _serve(client: Any) -> AgentPoint | None:
    from chaos_mm.agent.vllm.adapter import VllmAdapter
    from chaos_mm.agent.vllm.core_link import CoreLink

    adapter = await VllmAdapter.learn(client)
    adapter.core = await CoreLink.learn(client)
    return await asyncio.to_thread(start_agent, adapter, make_board(), measures=adapter.measures)
