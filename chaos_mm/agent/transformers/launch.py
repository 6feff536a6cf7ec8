"""Run a Python server with the agent in it: the same command, the same process, none of its code changed."""

import json
import logging
import os
import sys
from typing import Any

from chaos_mm.agent.control import make_board
from chaos_mm.agent.transformers.imports import ImportHook
from chaos_mm.agent.transformers.process import ProcessAgent
from chaos_mm.agent.transformers.serve import serve_patches
from chaos_mm.core import serving

__all__ = ["Launch"]

logger = logging.getLogger("chaos_mm.agent")


class Launch:
    """Waits for the first model of this process, or for the server to be built, and starts the agent then.

    Until then no thread runs and no address is taken: a process that only stands by must not hold the one that serves.
    """

    def __init__(self, runner: str) -> None:
        """``runner``: the command's name, for evidence."""
        self._runner = runner
        self._board = make_board()
        self._agent: ProcessAgent | None = None
        self._refused = ""
        self._forget: Any = None

    def prepare(self) -> None:
        """Install the import hook, and listen."""
        ImportHook(serve_patches(self._server, self._refuse)).install()
        self._forget = serving.listen(self)

    # -- serving.Listener, until the first model

    def model(self, model: Any) -> None:
        """A model is there."""
        self._start(one_at_a_time=False)

    def gone(self, model: Any) -> None:
        """Nothing to let go of yet."""

    def cache(self, kept: serving.KeptOutputs) -> None:
        """The agent is told of it when it listens."""

    def begin(self, batch: serving.Batch) -> None:
        """No model was announced: nothing is hooked."""

    def end(self, batch: serving.Batch) -> None:
        """Nothing was begun."""

    def key(self, key: bytes, request: str) -> bytes:
        """As it is."""
        return key

    def _server(self) -> None:
        """``transformers serve`` is about to listen."""
        self._start(one_at_a_time=True)
        if self._agent is not None:
            self._agent.adapter.one_at_a_time = True

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        if self._agent is not None:
            self._agent.adapter.refused = reason

    def _start(self, one_at_a_time: bool) -> None:
        if self._agent is not None:
            return
        if self._forget is not None:
            self._forget()
        try:
            self._begin(one_at_a_time)
        except Exception:  # it is the server's thread: models are loaded and served whatever becomes of the agent
            logger.exception("chaos_mm agent stays inert in %s: it could not be started", self._runner)

    def _begin(self, one_at_a_time: bool) -> None:
        self._agent = agent = ProcessAgent(self._runner, self._board)
        agent.adapter.one_at_a_time = one_at_a_time
        agent.adapter.refused = self._refused
        if agent.serve():
            line = {"ready": "agent", "control_url": agent.url, "pid": os.getpid()}
            sys.stderr.write(json.dumps(line) + "\n")
            sys.stderr.flush()
