"""Allocations inside a vLLM worker: a ceiling on them, and ones that fail where told: the seam ``engine_memory``."""

import resource
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Seam

__all__ = ["WorkerMemory", "declare", "read", "together"]

_SIZE, _RESIDENT = 0, 1  # fields of /proc/self/statm, in pages
_NO_GROWTH: Final = (
    "site=kv_growth is not to be had in vLLM: its key-value cache is allocated once, at the start; "
    "attention and encoder can fail, and kv_cache_pressure takes blocks away"
)


def declare(runtime: Runtime, worker: Any) -> None:
    """This worker has the seam. Limits and patches are set in one go, so the watcher may do it beside a step."""
    runtime.declare(Seam.ENGINE_MEMORY, lambda armed: WorkerMemory(worker, runtime, armed), place="watcher")


class WorkerMemory:
    """``core.engine.EngineMemory`` of one lease in one worker."""

    def __init__(self, worker: Any, runtime: Runtime, armed: Armed) -> None:
        """``worker``: vLLM's."""
        self.device = str(worker.device.type)
        self._worker, self._runtime, self._armed = worker, runtime, armed
        self._lift: Callable[[], None] | None = None
        self._unpatch: list[Callable[[], None]] = []
        self._left = 0
        self._lock = threading.Lock()

    def used(self) -> int:
        """Bytes: what torch has reserved on a CUDA device, what is resident on a CPU."""
        if self.device == "cuda":
            import torch

            return int(torch.cuda.memory_reserved(self._worker.device))
        return _statm(_RESIDENT)

    def set_ceiling(self, headroom_bytes: int) -> int:
        """Bytes that may be reserved on the device, or on a CPU the address space that the process may have."""
        if self.device == "cuda":
            return self._cuda_ceiling(self.used() + headroom_bytes)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        # Never above a limit that is there already; below 0 there is none.
        ceiling = min(limit for limit in (_statm(_SIZE) + headroom_bytes, soft, hard) if limit >= 0)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, hard))
        self._lift = lambda: resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        return ceiling

    def lift_ceiling(self) -> None:
        """As before. Harmless where none was set."""
        lift, self._lift = self._lift, None
        if lift is not None:
            lift()

    def fail_at(self, site: str, times: int) -> None:
        """Raise the allocator's error instead of the next ``times`` calls of the decoder's attention or of the encoder.

        Raises InvalidParams for a site that vLLM does not have.
        """
        if site == "kv_growth":
            raise InvalidParams(_NO_GROWTH)
        self._armed.later = True  # nothing is hurt before one of them is made
        self._left = times
        if site == "encoder":
            self._patch(self._worker.model_runner.get_model(), "embed_multimodal", site)
            return
        layers = self._worker.vllm_config.compilation_config.static_forward_context.values()
        for kind in {type(layer.impl) for layer in layers if hasattr(layer, "impl")}:
            self._patch(kind, "forward", site)

    def stop_failing(self) -> None:
        """From now on none does."""
        self._left = 0
        while self._unpatch:
            self._unpatch.pop()()

    def sleep(self, seconds: float) -> bool:
        """Wait; True while the lease lives."""
        self._armed.wait(seconds)
        return self._armed.live

    def _cuda_ceiling(self, ceiling: int) -> int:
        import torch

        device = self._worker.device
        total = torch.cuda.get_device_properties(device).total_memory
        before = torch.cuda.get_per_process_memory_fraction(device)
        torch.cuda.set_per_process_memory_fraction(min(1.0, ceiling / total), device)
        self._lift = lambda: torch.cuda.set_per_process_memory_fraction(before, device)
        return min(ceiling, int(total))

    def _patch(self, owner: Any, name: str, site: str) -> None:
        """Put ourselves before ``owner.name``; undone only while nobody has patched it since."""
        had, real = name in vars(owner), getattr(owner, name)

        def failing(*arguments: Any, **options: Any) -> Any:
            if self._fails():
                self._tell(site)
                raise self._error(site)
            return real(*arguments, **options)

        def undo() -> None:
            if vars(owner).get(name) is not failing:
                return  # whoever lies over us still calls us, and we let everything pass
            type.__setattr__(owner, name, real) if isinstance(owner, type) else _restore(owner, name, real, had)

        # A module's own __setattr__ would register what it is given; a class has no other way.
        type.__setattr__(owner, name, failing) if isinstance(owner, type) else vars(owner).update({name: failing})
        self._unpatch.append(undo)

    def _fails(self) -> bool:
        with self._lock:
            if self._left <= 0 or not self._armed.live:
                return False
            self._left -= 1
            return True

    def _tell(self, site: str) -> None:
        self._runtime.fired(Seam.ENGINE_MEMORY)
        self._armed.hit(site, {"failed_allocations": 1.0})
        self._runtime.flush(self._armed)  # the process may not live long after this

    def _error(self, site: str) -> Exception:
        where = f"at {site}, by lease {self._armed.name} of chaos_mm"
        if self.device == "cuda":
            import torch

            error: Exception = torch.OutOfMemoryError(f"CUDA out of memory ({where})")
            return error
        return RuntimeError(f"DefaultCPUAllocator: can't allocate memory ({where})")


def read(worker: Any) -> dict[str, Any]:
    """Asked by ``collective_rpc``: ``device``, ``used_bytes`` of this worker, and what a CUDA device has free."""
    if worker.device.type != "cuda":
        return {"device": worker.device.type, "used_bytes": _statm(_RESIDENT)}
    import torch

    free, total = torch.cuda.mem_get_info(worker.device)
    return {
        "device": str(worker.device),
        "used_bytes": int(torch.cuda.memory_reserved(worker.device)),
        "free_bytes": int(free),
        "utilisation_ratio": 1 - free / total,
    }


def together(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What ``GET /agent`` says of several workers: bytes used in all, and the device that has the least left."""
    if not answers:
        return {}
    fullest = min(answers, key=lambda answer: int(answer.get("free_bytes", 0)))
    return {**fullest, "used_bytes": sum(answer["used_bytes"] for answer in answers)}


def _restore(owner: Any, name: str, real: Any, had: bool) -> None:
    if had:
        vars(owner)[name] = real
    else:
        del vars(owner)[name]


def _statm(field: int) -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()
