"""A real engine in miniature: requests decode over a block-wise key-value cache of torch tensors, step by step.

Each step writes one row per live request and answers with a number computed from all its rows, so that whatever harms
a row shows in every later answer. Blocks of finished requests go back to a free list and are handed out again.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from chaos_mm.agent.adapter import Adapter
from chaos_mm.agent.armed import Armed
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Effect, Fault, Seam

BLOCK, HEADS, DIM = 4, 2, 8


@dataclass
class Generation:
    """One request in flight, or finished."""

    id: str
    wanted: int
    blocks: list[int] = field(default_factory=list)
    rows: int = 0
    answers: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def finished(self) -> bool:
        return bool(self.error) or len(self.answers) >= self.wanted


class Part:
    """One block of a request's cache."""

    layer, name = 0, "keys"

    def __init__(self, engine: "Engine", armed: Armed, request: Generation, block: int) -> None:
        self.tensor = engine.cache[block]
        self._engine, self._armed, self._request, self._block = engine, armed, request, block

    def write(self, new: Any) -> None:
        self._armed.write(self.tensor, new, locate=self._locate)

    def _locate(self) -> Any:
        owner = next((r for r in self._engine.live if self._block in r.blocks), None)
        return self.tensor if owner in (None, self._request) else None


class Cache:
    """A request's cache as a fault sees it."""

    layers, heads, prompt_tokens, cached_tokens = 1, HEADS, 1, 0

    def __init__(self, engine: "Engine", armed: Armed, request: Generation) -> None:
        self.request, self.tokens, self.output_index = request.id, request.rows, len(request.answers)
        self._made = engine, armed, request

    def parts(self, **words: str) -> Iterator[Part]:
        engine, armed, request = self._made
        for block in request.blocks:
            yield Part(engine, armed, request, block)

    def others(self) -> list["Cache"]:
        return []


class Memory:
    """A ceiling that only counts."""

    device = "cpu"

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def set_ceiling(self, headroom_bytes: int) -> int:
        self._engine.ceiling = headroom_bytes
        return headroom_bytes

    def lift_ceiling(self) -> None:
        self._engine.ceiling = None


class Pool:
    """Blocks taken away from the engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def hold(self, blocks: int) -> int:
        self._engine.held += blocks
        return blocks


class Engine(Adapter):
    """Steps requests; its seams are kv, attention, engine_memory and block_pool."""

    name, version = "miniature", "1"
    facts = {"backend": "torch"}
    seams = frozenset((Seam.KV, Seam.ATTENTION, Seam.ENGINE_MEMORY, Seam.BLOCK_POOL))
    batch_wide = frozenset((Seam.ATTENTION,))
    fatal = {Effect.RAISES: "restart needed: a step does not survive an exception"}

    def __init__(self, runtime: Runtime, blocks: int = 16) -> None:
        self.cache = torch.zeros(blocks, HEADS, BLOCK, DIM)
        self.free = list(range(blocks))
        self.live: list[Generation] = []
        self.ceiling: int | None = None
        self.held = 0
        self.hooked = True
        self.guard = threading.Lock()
        self.runtime = runtime
        for seam in (Seam.KV, Seam.ATTENTION):
            runtime.declare(seam)
        runtime.declare(Seam.ENGINE_MEMORY, lambda armed: Memory(self), "watcher")
        runtime.declare(Seam.BLOCK_POOL, lambda armed: Pool(self), "watcher")

    def prove(self, seam: Seam) -> str:
        self.run("prove", 2)
        return ""

    def refusal(self, fault: Fault) -> str:
        return ""

    def add(self, request_id: str, wanted: int) -> Generation:
        request = Generation(request_id, wanted)
        with self.guard:
            self.live.append(request)
        return request

    def run(self, request_id: str, wanted: int) -> list[float]:
        request = self.add(request_id, wanted)
        while not request.finished:
            self.step()
        return request.answers

    def step(self) -> None:
        with self.guard:
            self.runtime.tick()
            if self.runtime.armed() and self.hooked:
                self._before()
            for request in list(self.live):
                self._decode(request)

    def _before(self) -> None:
        infos = [RequestInfo(request.id, "") for request in self.live]
        self.runtime.observe(infos)
        self.runtime.fired(Seam.KV)
        for armed in self.runtime.leases(Seam.KV):
            for info, request in zip(infos, self.live, strict=True):
                if armed.chosen(info):
                    cache = Cache(self, armed, request)
                    armed.strike(cache, request.id, f"token{cache.output_index}", "layer0")

    def _attention(self, request: Generation) -> None:
        self.runtime.fired(Seam.ATTENTION)
        for armed in self.runtime.leases(Seam.ATTENTION):
            if armed.chosen(RequestInfo(request.id, "")):
                armed.strike(SimpleNamespace(layer=0), request.id, f"token{request.rows}", "layer0")

    def _decode(self, request: Generation) -> None:
        try:
            if self.runtime.armed() and self.hooked:
                self._attention(request)
        except TimeoutError as error:
            request.error = str(error)
        if not request.finished:
            if request.rows % BLOCK == 0:
                request.blocks.append(self.free.pop(0))
            row = torch.arange(HEADS * DIM).reshape(HEADS, DIM) * 0.01 + request.rows
            self.cache[request.blocks[-1], :, request.rows % BLOCK] = row
            request.rows += 1
            request.answers.append(float(self.rows(request).sum()))
        if request.finished:
            self.live.remove(request)
            self.free = request.blocks + self.free  # the newest first, so that they are used again at once

    def rows(self, request: Generation) -> torch.Tensor:
        return torch.cat([self.cache[block] for block in request.blocks], dim=1)[:, : request.rows]
