"""One runtime of the agent in each process of the server."""

import os
import threading
from collections.abc import Callable
from typing import Any

from chaos_mm.agent.control import make_board
from chaos_mm.agent.runtime import Runtime

__all__ = ["ATTRIBUTE", "built_once", "joined", "prepare_children", "runtime", "worker_agents"]

ATTRIBUTE = "chaos_mm_agent"
"""Where vLLM's own worker and engine core carry their agent."""
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


def built_once(owner: Any, build: Callable[[Any], Any]) -> Any:
    """The agent that ``owner`` carries, made by ``build(owner)`` when first asked for; None stays None."""
    found = owner.__dict__.get(ATTRIBUTE, False)
    if found is False:
        found = owner.__dict__[ATTRIBUTE] = build(owner)
    return found


def joined(agent: Any) -> None:
    """A worker's agent was built in this process."""
    _agents.append(agent)


def worker_agents() -> tuple[Any, ...]:
    """Agents of the workers in this process: what has no other way to its worker finds it here."""
    return tuple(_agents)
