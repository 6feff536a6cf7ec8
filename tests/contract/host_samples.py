"""What the host hands to a hold fault, in small: it remembers in order what was asked of it, and nothing else.

A new protocol of ``chaos_mm.core.host`` comes together with its sample here; a hold on one without a sample fails.
"""

from collections.abc import Callable, Mapping
from typing import Any

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.host import GpuMemory, HostMemory, Processes


class Remembered:
    """``events``: what was asked. ``fails``: the word at which it raises. ``lives``: whether the lease still does."""

    def __init__(self, fails: str = "") -> None:
        self.events, self.fails, self.lives = list[str](), fails, True

    def note(self, word: str) -> None:
        if word == self.fails:
            raise ChaosMMError(f"{word} fails")
        self.events.append(word)

    def sleep(self, seconds: float) -> bool:
        return self.lives

    # What is held, whether memory or a device.

    def reached(self) -> bool:
        self.note("reached")
        return True

    def figures(self) -> Mapping[str, float]:
        return {"held_bytes": 1.0}

    def release(self) -> None:
        self.note("undo")


class SampleHostMemory(Remembered):
    def available(self) -> int:
        return 1 << 40

    def fill(self, **asked: Any) -> Remembered:
        self.note("begin")
        return self

    limit = fill


class SampleGpuMemory(Remembered):
    def check(self, **asked: Any) -> None:
        self.note("check")

    def hold(self, **asked: Any) -> Remembered:
        self.note("begin")
        return self


class SampleProcesses(Remembered):
    pid = 4242

    def choose(self, **asked: Any) -> "SampleProcesses":
        self.note("choose")
        return self

    def pause(self) -> None:
        self.note("begin")

    def resume(self) -> None:
        self.note("undo")

    def kill(self) -> Mapping[str, float]:
        self.note("begin")
        return {"killed_processes": 1.0}

    def await_replacement(self, seconds: float) -> None:
        self.note("undo")


HOST_SAMPLES: Mapping[type, Callable[[str], Remembered]] = {
    HostMemory: SampleHostMemory,
    GpuMemory: SampleGpuMemory,
    Processes: SampleProcesses,
}
