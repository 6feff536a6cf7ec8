"""The agent in vLLM's engine core: the scheduler's seams, and what the control process asks of the scheduler.

Everything that touches the scheduler runs in the engine core's own loop, before a step or, where the engine is idle, at
a wake-up that a thread of ours puts into its input queue. So a hold ends by its own deadline whoever else has died.
"""

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.layout import Header
from chaos_mm.agent.vllm import caches, memory, process
from chaos_mm.agent.vllm.block_pool import HeldBlocks, evict_blocks, kv_facts
from chaos_mm.agent.vllm.calls import step_seconds
from chaos_mm.agent.vllm.core_facts import core_refusals
from chaos_mm.agent.vllm.media_keys import MediaKeySeam, MediaMask
from chaos_mm.agent.vllm.preemption import Preemption, request_info
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Seam

__all__ = ["CORE_SEAMS", "CoreAgent", "agent_of", "install"]

logger = logging.getLogger("chaos_mm.agent")
CORE_SEAMS: Final = frozenset({Seam.BLOCK_POOL, Seam.SCHEDULER, Seam.MEDIA_KEY, Seam.ENCODER_CACHE})
_Made = TypeVar("_Made")
_WAKE_SECONDS: Final = 0.05


class CoreAgent:
    """One per engine core. ``core``: vLLM's ``EngineCoreProc``."""

    def __init__(self, core: Any) -> None:
        """Join the board and declare the seams; inert where there is none."""
        self.core, self.scheduler = core, core.scheduler
        self.runtime = process.runtime("engine_core")
        self._words: Any = () if self.runtime.inert else self.runtime.page.words
        self.refused = core_refusals(core)
        self.media = MediaKeySeam(self.scheduler, self.scheduler.block_size, self._forget_media)
        self.passed: set[Seam] = set()
        """Seams that a request has passed since ``probe``."""
        self._largest = 0
        self._preemptions: list[Preemption] = []
        self._ramps: list[HeldBlocks] = []
        self._ticked_generation, self._was_armed = -1, False
        for seam, value in self._values().items():
            if seam not in self.refused:
                self.runtime.declare(seam, value)
        self.runtime.hooks(3)

    def start(self) -> None:
        """Begin to watch the board and to wake the idle engine."""
        if not self.runtime.inert:
            self.runtime.watch()
            threading.Thread(target=self._wake, name="chaos-mm-wake", daemon=True).start()

    def tick(self) -> None:
        """In the loop, between two steps."""
        generation = self._words[Header.GENERATION]
        self._was_armed = self.runtime.armed()
        self.runtime.tick()
        if self._ramps:
            self._ramps = [ramp for ramp in self._ramps if ramp.advance()]
        self._ticked_generation = generation

    def before_step(self) -> None:
        """As ``tick``; a step follows."""
        self.tick()
        self.passed.add(Seam.SCHEDULER)
        if self._was_armed:
            self._preempt()

    def add(self, real: Callable[[Any], Any], request: Any) -> Any:
        """A request arrives, in the input thread: ``real`` makes vLLM's ``Request`` of it."""
        self.passed.add(Seam.MEDIA_KEY)
        mask = _guarded(self._cut_keys, request) if self.runtime.armed() and request.mm_features else None
        if mask is None:
            return real(request)
        try:
            made = real(request)
            self.media.made(mask, made[0])
        except Exception:  # vLLM refuses this one request, a canary, in the way of all that it cannot take
            self.media.lost(mask, request.request_id)
            raise
        return made

    # -- asked by the control process, in the loop

    def facts(self) -> dict[str, Any]:
        """Why seams are not to be had here, by name; and the state of the key-value blocks."""
        refused = {seam.value: why for seam, why in self.refused.items()}
        return {"inert": self.runtime.inert, "refused": refused, "kv": dict(kv_facts(self._manager))}

    def evict(self, blocks: list[int]) -> dict[str, int]:
        """Take blocks out of the prefix cache."""
        return evict_blocks(self._manager, blocks)

    def flush(self) -> dict[str, int]:
        """Forget every cached prefix; ``flushed`` is 0 where blocks in use forbid it."""
        return {"flushed": int(bool(self.core.reset_prefix_cache()))}

    def flush_media(self) -> dict[str, int]:
        """Flush what masked requests left behind, of ended leases."""
        return self.media.flush()

    def probe(self) -> dict[str, str]:
        """Try the seams that need no request; why one does not take hold. Forgets which were passed."""
        self.passed.clear()
        return {Seam.BLOCK_POOL.value: self._probe_blocks(), Seam.ENCODER_CACHE.value: self._probe_encoder_cache()}

    def passes(self) -> list[str]:
        """Seams passed since ``probe``."""
        return sorted(seam.value for seam in self.passed)

    # -- inside

    @property
    def _manager(self) -> Any:
        return self.scheduler.kv_cache_manager

    def _values(self) -> dict[Seam, Callable[[Armed], Any]]:
        return {
            Seam.BLOCK_POOL: self._held_blocks,
            Seam.SCHEDULER: self._preemption,
            Seam.MEDIA_KEY: self.media.for_lease,
            Seam.ENCODER_CACHE: lambda armed: caches.EncoderStore(
                self.scheduler.encoder_cache_manager, self._largest_medium
            ),
        }

    def _cut_keys(self, request: Any) -> MediaMask | None:
        leases = self.runtime.leases(Seam.MEDIA_KEY)
        if not leases:
            return None
        self.runtime.fired(Seam.MEDIA_KEY)
        for armed in leases:
            armed.matches(request_info(request))
        return self.media.cut_keys(request)

    def _held_blocks(self, armed: Armed) -> HeldBlocks:
        made = HeldBlocks(self._manager.block_pool, armed)
        self._ramps.append(made)
        return made

    def _preemption(self, armed: Armed) -> Preemption:
        made = Preemption(self.scheduler, armed)
        self._preemptions.append(made)
        return made

    def _preempt(self) -> None:
        leases = self.runtime.leases(Seam.SCHEDULER)
        if leases:
            self.runtime.fired(Seam.SCHEDULER)
        for armed in leases:
            for request in self.scheduler.running:
                armed.matches(request_info(request))
        for preemption in self._preemptions:
            preemption.before_step()
        self._preemptions = [preemption for preemption in self._preemptions if not preemption.ended]

    def _forget_media(self, prefix: str) -> int:
        answers = self.core.collective_rpc("chaos_mm_forget_media", step_seconds(), (prefix,))
        return sum(left for _, left in answers)

    def _largest_medium(self) -> int:
        if not self._largest:
            self._largest = max(self.core.collective_rpc("chaos_mm_largest_medium", step_seconds()))
        return self._largest

    def _probe_blocks(self) -> str:
        held = HeldBlocks(self._manager.block_pool)
        before = held.free
        taken = held.hold(1)
        during = held.free
        held.release()
        if not taken:
            return "no block is free"
        return "" if (during, held.free) == (before - 1, before) else "a held block is still handed out"

    def _probe_encoder_cache(self) -> str:
        if Seam.ENCODER_CACHE in self.refused:
            return self.refused[Seam.ENCODER_CACHE]
        return caches.adds_up(self.scheduler.encoder_cache_manager)

    def _wake(self) -> None:
        """Wake the loop while a lease lives or the board has changed. Touches nothing but the input queue."""
        from vllm.v1.engine import EngineCoreRequestType

        pause = threading.Event()
        while not pause.wait(_WAKE_SECONDS):
            due = self._was_armed or self.runtime.page.generation != self._ticked_generation
            if due and self.core.input_queue.empty():
                self.core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))


def install() -> None:
    """Put the agent's doors into the classes of the engine core and of the workers, once a process."""
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.worker.worker_base import WorkerBase

    if hasattr(EngineCoreProc, "chaos_mm_core"):
        return
    EngineCoreProc._process_engine_step = _stepping(EngineCoreProc._process_engine_step)
    EngineCoreProc._handle_client_request = _waking(EngineCoreProc._handle_client_request)
    EngineCoreProc.preprocess_add_request = _adding(EngineCoreProc.preprocess_add_request)
    EngineCoreProc.chaos_mm_core = _ask
    WorkerBase.chaos_mm_forget_media = caches.forget_media
    WorkerBase.chaos_mm_largest_medium = caches.largest_medium
    WorkerBase.chaos_mm_memory = memory.read


def agent_of(core: Any) -> CoreAgent | None:
    """The engine core's agent, built when its loop first asks; None where it is inert or could not be built (logged).

    Plugins are loaded inside the constructor of the engine core, so this cannot be earlier.
    """
    agent: CoreAgent | None = process.built_once(core, _built)
    return agent


def _built(core: Any) -> CoreAgent | None:
    try:
        agent = CoreAgent(core)
    except Exception:  # the engine must run whatever becomes of us
        logger.exception("chaos_mm agent is inert in the engine core: it could not be built")
        return None
    if agent.runtime.inert:
        return None
    agent.start()
    return agent


def _stepping(real: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @wraps(real)
    def _process_engine_step(core: Any) -> bool:
        agent = agent_of(core)
        if agent is not None:
            _guarded(agent.before_step)
        return real(core)

    return _process_engine_step


def _waking(real: Callable[..., None]) -> Callable[..., None]:
    from vllm.v1.engine import EngineCoreRequestType

    @wraps(real)
    def _handle_client_request(core: Any, request_type: Any, request: Any) -> None:
        agent = agent_of(core)
        if agent is not None and request_type == EngineCoreRequestType.WAKEUP:
            _guarded(agent.tick)
        real(core, request_type, request)
        if agent is not None and agent.media.expects and request_type == EngineCoreRequestType.ADD:
            _guarded(agent.media.arrived, request[0].request_id)

    return _handle_client_request


def _adding(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def preprocess_add_request(core: Any, request: Any) -> Any:
        agent = core.__dict__.get(process.ATTRIBUTE)  # built by the loop alone
        return real(core, request) if agent is None else agent.add(lambda asked: real(core, asked), request)

    return preprocess_add_request


def _guarded(work: Callable[..., _Made], *arguments: Any) -> _Made | None:
    try:
        return work(*arguments)
    except Exception:  # an exception here would end the engine
        logger.exception("the agent in the engine core met an error")
        return None


def _ask(core: Any, question: str, arguments: list[Any]) -> Any:
    """``EngineCoreProc.chaos_mm_core``: one of ``_QUESTIONS``, called as a utility method in the loop."""
    agent = agent_of(core)
    if agent is None or question not in _QUESTIONS:
        raise ChaosMMError(f"the agent in the engine core is inert, or has no answer to {question[:40]!r}")
    return getattr(agent, question)(*arguments)


_QUESTIONS: Final = frozenset({"facts", "evict", "flush", "flush_media", "probe", "passes"})
