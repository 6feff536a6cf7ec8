"""One runtime of the agent in each process of the server."""

import os
import threading
from typing import Any

from chaos_mm.agent.control import make_board
from chaos_mm.agent.runtime import Runtime

__all__ = ["joined", "prepare_children", "runtime", "worker_agents"]

_lock = threading.Lock()
_found: dict[int, Runtime] = {}
_agents: list[Any] = []


def prepare_children() -> None:
    """In the server's first process: make the board, so that the processes started from here inherit its name.

    Does nothing where one is named already. Raises ChaosMMError where the state folder does not allow it.
    """
    if not os.environ.get("CHAOS_MM_AGENT_NONCE"):
        make_board().close()


def runtime(process: str) -> Runtime:
    """The runtime of this process, made at the first call under that name; inert where there is no board."""
    pid = os.getpid()  # a forked child must not go on with its parent's
    if (found := _found.get(pid)) is not None:  # asked for every request of every step
        return found
    with _lock:
        if pid not in _found:
            _found[pid] = Runtime.from_environment(process)
        return _found[pid]


def joined(agent: Any) -> None:
    """A worker's agent was built in this process."""
    _agents.append(agent)


def worker_agents() -> tuple[Any, ...]:
    """Agents of the workers in this process: what has no other way to its worker finds it here."""
    return tuple(_agents)
