"""The agent in a process that serves a model itself: one's own, or somebody's server that was started through us."""

import threading
from typing import Any

from chaos_mm.agent.board import Board
from chaos_mm.agent.control import AgentPoint, enabled, make_board, start_agent
from chaos_mm.agent.measuring import Measures
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.transformers.adapter import TransformersAdapter
from chaos_mm.agent.transformers.engine import TransformersEngine
from chaos_mm.core import serving
from chaos_mm.core.errors import ChaosMMError

__all__ = ["ProcessAgent", "attach"]


class ProcessAgent:
    """Listens to the server of this process and, once ``serve`` was called, answers at the control address."""

    def __init__(self, runner: str, board: Board) -> None:
        """``runner``: what serves, for evidence."""
        self.runtime = Runtime.from_environment("engine")
        if self.runtime.inert:
            raise ChaosMMError(f"the agent cannot work in this process: {self.runtime.inert}")
        self.measures = Measures.from_environment()
        self.engine = TransformersEngine(self.runtime, self.measures)
        self.adapter = TransformersAdapter(self.engine, runner=runner)
        self.point: AgentPoint | None = None
        self._board, self._lock = board, threading.Lock()
        self.engine.listen()

    @property
    def url(self) -> str:
        """The control address; empty while it is not served."""
        return self.point.url if self.point is not None else ""

    def serve(self) -> bool:
        """Serve the control API, once; False where that is not possible (logged)."""
        with self._lock:
            if self.point is None:
                self.point = start_agent(self.adapter, self._board, measures=self.measures.facts)
                if self.point is not None:
                    self.engine.on_change = self.point.mirror.proofs.start
            return self.point is not None

    def close(self) -> None:
        """End every lease, undo what is to be undone, take every hook out."""
        if self.point is not None:
            self.point.close()
        self.runtime.close()
        self.engine.close()


def attach(model: Any = None, *, runner: str = "own process") -> ProcessAgent:
    """Start the agent in this process; ``model``: announced at once, like ``serving.announce_model``.

        from chaos_mm.agent import attach
        from chaos_mm.core import serving

        agent = attach(model)
        with serving.running([request_id]):
            model.generate(...)

    Needs CHAOS_MM_AGENT=1 and a token file (CHAOS_MM_TOKEN_FILE); the control address is that of
    CHAOS_MM_AGENT_CONTROL_URL. Raises ChaosMMError saying what is missing, or that the address cannot be used.
    """
    why = enabled()
    if why:
        raise ChaosMMError(f"the agent cannot be attached: {why}")
    agent = ProcessAgent(runner, make_board())
    if model is not None:
        serving.announce_model(model)
    if not agent.serve():
        agent.close()
        raise ChaosMMError("the agent's control address cannot be served by this process; its log says why")
    return agent
