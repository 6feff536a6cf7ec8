"""What ``GET /agent`` answers: the engine, its seams and processes, what can be measured. What is unknown is null."""

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from chaos_mm.agent.adapter import Adapter
from chaos_mm.agent.board import WorkerSlot
from chaos_mm.agent.layout import SEAMS, WorkerWord
from chaos_mm.agent.mirror import Mirror
from chaos_mm.core.fault import Seam

__all__ = ["agent_evidence"]
_MEMORY: Final = (
    "device",
    "used_bytes",
    "free_bytes",
    "largest_free_block_bytes",
    "host_available_bytes",
    "utilisation_ratio",
)
_KV: Final = ("usage_ratio", "hit_ratio", "blocks_total", "blocks_free")


def agent_evidence(mirror: Mirror, measures: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Strict JSON; numbers that are not finite become null."""
    adapter, workers = mirror.adapter, mirror.board.workers()
    living = [worker for worker in workers if worker.alive]
    memory, kv = {"host_available_bytes": _host_available(), **adapter.memory()}, adapter.kv()
    evidence = {
        "loaded": bool(living),
        "pid": os.getpid(),
        "engine": {"name": adapter.name, "version": adapter.version, **adapter.facts},
        "seams": {seam.value: _seam(mirror, seam, living) for seam in SEAMS},
        "workers": [_worker(worker) for worker in workers],
        "memory": {name: memory.get(name) for name in _MEMORY},
        "kv": {name: kv.get(name) for name in _KV},
        "measures": dict(measures()),
    }
    strict: dict[str, Any] = _strict(evidence)
    return strict


def _seam(mirror: Mirror, seam: Seam, living: list[WorkerSlot]) -> dict[str, Any]:
    known = seam in mirror.adapter.seams
    there = any(seam in worker.seams for worker in living)
    reason = mirror.proofs.reason(seam) if known else _missing(mirror.adapter, seam)
    if known and not there:
        reason = "no living process of the engine has it"
    return {
        "available": known and there,
        "proven": known and there and reason == "",
        "reason": "not proven yet" if reason is None else reason,
        "fired": sum(worker.get(WorkerWord.FIRED + SEAMS.index(seam)) for worker in living),
    }


def _missing(adapter: Adapter, seam: Seam) -> str:
    return adapter.seam_reason(seam) or f"{adapter.name} has no such seam"


def _worker(worker: WorkerSlot) -> dict[str, Any]:
    last = worker.get(WorkerWord.LAST_STEP_NS)
    return {
        "process": worker.name,
        "pid": worker.identity.pid,
        "alive": worker.alive,
        "seams": sorted(worker.seams),
        "steps": worker.get(WorkerWord.STEPS),
        "last_step_age_seconds": (time.monotonic_ns() - last) / 1e9 if last else None,
        "pending_undo": worker.get(WorkerWord.PENDING_UNDO),
        "hooks": worker.get(WorkerWord.HOOKS),
        "lost_events": worker.get(WorkerWord.LOST),
    }


def _host_available() -> int | None:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_strict(item) for item in value]
    return value
