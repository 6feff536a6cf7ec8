"""The general plugin of vLLM: every process of the server loads it, and only a worker does anything with it.

It runs in the API server, the engine core, the workers and the process that inspects models, sometimes twice. It
binds no port and imports nothing of vLLM unless the agent is switched on; a failure of ours never stops a server.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos_mm.agent.vllm import gate

__all__ = ["register"]

logger = logging.getLogger("chaos_mm.agent")


def register() -> None:
    """Entry point of the group ``vllm.general_plugins``: put the agent's doors into the worker classes, once."""
    if not gate.enabled():
        return
    if why := gate.refusal():
        logger.error("chaos_mm agent is inert: %s", why)
        return
    try:
        _install()
    except Exception:  # whatever vLLM has moved, its server must start
        logger.exception("chaos_mm agent is inert: its doors do not fit this vLLM")


def _install() -> None:
    from vllm.v1.worker.worker_base import WorkerBase, WorkerWrapperBase

    from chaos_mm.agent.vllm import core, process, uncached, worker

    process.prepare_children()
    core.install()
    uncached.install()
    if hasattr(WorkerBase, "chaos_mm_facts"):
        return
    WorkerBase.chaos_mm_facts = worker.facts
    WorkerBase.chaos_mm_evidence = worker.evidence
    WorkerBase.chaos_mm_forget = worker.forget
    WorkerWrapperBase.execute_model = _door(WorkerWrapperBase.execute_model, worker.step)


def _door(real: Callable[..., Any], step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def execute_model(wrapper: Any, scheduler_output: Any, *rest: Any, **options: Any) -> Any:
        return step(real, wrapper, scheduler_output, rest, options)

    return execute_model
