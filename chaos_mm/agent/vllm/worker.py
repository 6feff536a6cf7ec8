"""The agent inside one vLLM worker: a door before every step, and what the control process may ask between steps.

Built at the first step, or at the first question, because plugins are loaded before workers exist. Whatever goes wrong
in it is logged and counted; the step goes on. Only the error that a fault asks to raise leaves a seam.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from chaos_mm.agent.measuring import Measures
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process
from chaos_mm.agent.vllm.attention import Patch, read_layers
from chaos_mm.agent.vllm.attention_seam import AttentionSeam
from chaos_mm.agent.vllm.book import RequestBook
from chaos_mm.agent.vllm.embedding_seam import EmbeddingSeam
from chaos_mm.agent.vllm.embeddings import watch_merge
from chaos_mm.agent.vllm.facts import read_facts, seam_refusals
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.kv import Blocks
from chaos_mm.agent.vllm.kv_seam import KvSeam
from chaos_mm.agent.vllm.taint import Taint
from chaos_mm.core.fault import Seam

__all__ = ["WorkerAgent", "agent_of", "evidence", "facts", "forget", "step"]

logger = logging.getLogger("chaos_mm.agent")


class WorkerAgent:
    """One worker's seams. ``guard`` is held while a step runs, so that an idle worker is undone by the watcher."""

    def __init__(self, worker: Any, runtime: Runtime) -> None:
        runner = worker.model_runner
        config = runner.kv_cache_config
        self.runtime, self.guard, self.measures = runtime, threading.Lock(), Measures.from_environment()
        names = config.kv_cache_groups[0].layer_names if config.kv_cache_groups else []
        context = worker.vllm_config.compilation_config.static_forward_context
        self.layers = read_layers(context, names)
        self.facts = read_facts(worker, self.layers)
        self.refused = seam_refusals(self.facts)
        self.book = RequestBook(int(self.facts["block_size"]))
        self.flights, self.taint = Flights(runtime, self.book, runner), Taint(self.book)
        self.errors = 0
        self.kv = self._kv(runner)
        self.attention = self._attention(context)
        self.embedding = self._embedding(runner)
        runtime.hooks(1 + len(self.attention[1] if self.attention else ()) + (self.embedding is not None))
        if self.measures.wants("attention"):
            logger.warning("chaos_mm measures no attention in vLLM: its kernels show no weights")
        # On a GPU an idle worker's stream may still run: there bytes go back at the next step, or when asked.
        runtime.watch(self.guard if self.facts["device"] == "cpu" else None)

    def before_step(self, output: Any) -> None:
        """Everything that happens between two steps; never raises."""
        try:
            self.flights.update(output)
            if self.kv is not None:
                self.kv.protect()
        except Exception:  # an exception here would be the end of the engine
            self._lose()
        try:
            self.runtime.tick()
            if self.taint.since:
                self.taint.follow()
            if self.runtime.armed():
                self._armed_step()
        except Exception:
            self._failed("the agent failed before a step")

    def _lose(self) -> None:
        """Nobody knows who is in this step: strike nobody any more, and put back what is hurt."""
        self.flights.lost = True
        self._failed("which request has which block could not be told: no lease acts here any more")
        try:
            if self.kv is not None:
                self.kv.put_back()
        except Exception:
            self._failed("hurt blocks could not be put back")

    def _failed(self, what: str) -> None:
        self.errors += 1
        logger.exception("%s; the step goes on", what)

    def _armed_step(self) -> None:
        if self.attention is not None:
            self.attention[0].step()
        if not self.flights.under_arms:  # scheduled while nothing was armed: its blocks may be shared already
            return
        self.runtime.observe((self.flights.info(flight) for flight in self.book.stepping), self.flights.seen)
        if self.kv is not None:
            self.kv.strike()

    def _kv(self, runner: Any) -> KvSeam | None:
        if Seam.KV in self.refused:
            return None
        tensors = [_as_numbers(tensor, self.facts["kv_dtype"]) for tensor in runner.kv_caches]
        size, backend = int(self.facts["block_size"]), str(self.facts["backend"])
        blocks = Blocks(tensors, int(self.facts["blocks"]), size, backend)
        self.runtime.declare(Seam.KV)
        return KvSeam(self.flights, blocks, self.taint)

    def _attention(self, context: Any) -> tuple[AttentionSeam, Patch] | None:
        if Seam.ATTENTION in self.refused or not self.layers:
            return None
        seam = AttentionSeam(self.flights, self.layers, self.taint)
        self.runtime.declare(Seam.ATTENTION)
        return seam, Patch(context, tuple(self.layers), seam.around, self.runtime.armed)

    def _embedding(self, runner: Any) -> EmbeddingSeam | None:
        if Seam.EMBEDDING in self.refused:
            return None
        seam = EmbeddingSeam(self.flights, str(self.facts["module"]), self.taint, self.measures)
        watch_merge(runner.get_model(), seam.see)
        self.runtime.declare(Seam.EMBEDDING)
        return seam

    def evidence(self) -> dict[str, Any]:
        """Strict JSON: what only this process knows."""
        taint = self.taint
        return {
            "pid": os.getpid(),
            "errors": self.errors,
            "live_requests": len(self.book.live),
            "hurt_blocks": self.kv.hurt if self.kv else 0,
            "taint": {key: {"blocks": taint.blocks(key), "carriers": taint.carriers(key)} for key in taint.leases()},
            "measures": self.measures.facts(),
        }


def agent_of(worker: Any) -> WorkerAgent | None:
    """The worker's agent, built when first asked for; None where it is inert or could not be built (logged once)."""
    agent: WorkerAgent | None = process.built_once(worker, _built)
    return agent


def _built(worker: Any) -> WorkerAgent | None:
    try:
        runtime = process.runtime("Worker")
        if runtime.inert:
            return None
        agent = WorkerAgent(worker, runtime)
        process.joined(agent)
        _declare_memory(agent, worker)
        return agent
    except Exception:
        logger.exception("chaos_mm agent is inert in this worker: it could not be built")
        return None


def _declare_memory(agent: WorkerAgent, worker: Any) -> None:
    from chaos_mm.agent.vllm import memory

    memory.declare(agent.runtime, worker)


def step(real: Callable[..., Any], wrapper: Any, output: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``WorkerWrapperBase.execute_model`` with the door before it."""
    agent = agent_of(wrapper.worker)
    if agent is None:
        return real(wrapper, output, *rest, **options)
    with agent.guard:
        agent.before_step(output)
        return real(wrapper, output, *rest, **options)


def facts(worker: Any) -> dict[str, Any]:
    """Asked by ``collective_rpc``: the engine's facts and which seams are refused, by name; ``inert`` where all are."""
    agent = agent_of(worker)
    if agent is None:
        return {"inert": process.runtime("Worker").inert or "the agent could not be built in the worker; see its log"}
    measured = sorted(agent.measures.kinds)
    return {**agent.facts, "measures": measured, "refused": {seam.value: why for seam, why in agent.refused.items()}}


def evidence(worker: Any) -> dict[str, Any]:
    """Asked by ``collective_rpc`` between steps: undo what is due where no watcher does it, then what is known."""
    agent = agent_of(worker)
    if agent is None:
        return {}
    with agent.guard:
        if agent.facts["device"] != "cpu":
            agent.runtime.tick()
        return agent.evidence()


def forget(worker: Any, lease: str) -> None:
    """Asked by ``collective_rpc``: the lease's derived blocks were evicted; those that are free are left clean."""
    agent = agent_of(worker)
    if agent is None:
        return
    with agent.guard:
        if agent.kv is not None:
            agent.kv.scrub(block for block in agent.taint.blocks(lease) if not agent.book.owners(block))
        agent.taint.forget(lease)


def _as_numbers(tensor: Any, dtype: str) -> Any:
    """Bytes of a float8 cache as float8: vLLM keeps them as uint8."""
    import torch

    return tensor.view(getattr(torch, dtype)) if tensor.dtype is torch.uint8 else tensor
