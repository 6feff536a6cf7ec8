"""How much a holder shall hold at a moment: pure, in bytes and seconds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """What to hold, of ``free`` bytes that were free at the beginning.

    The level is ``share`` of them, at most ``free - floor_bytes``. ``pattern``: fill (evenly up over ``ramp_seconds``,
    then the level), spike (fill, and after each ``period_seconds`` half a period of nothing), leak (``rate_bytes`` more
    each second up to the level), fragment (fill in blocks of ``block_bytes``, then every other one given back).
    """

    pattern: str = "fill"
    share: float = 1.0
    floor_bytes: int = 0
    ramp_seconds: float = 0.0
    rate_bytes: int = 0
    period_seconds: float = 0.0
    block_bytes: int = 64 << 20

    def level(self, free: int) -> int:
        """The most that is ever held."""
        return max(0, min(int(self.share * free), free - self.floor_bytes))

    def wanted(self, elapsed: float, free: int) -> int:
        """What to hold ``elapsed`` seconds after the beginning."""
        level = self.level(free)
        if self.pattern == "leak":
            return min(level, int(self.rate_bytes * elapsed))
        if self.pattern == "spike" and elapsed >= self.ramp_seconds:
            since = (elapsed - self.ramp_seconds) % self.period_seconds
            return level if since < self.period_seconds / 2 else 0
        if self.ramp_seconds and elapsed < self.ramp_seconds:
            return int(level * elapsed / self.ramp_seconds)
        return level

    def begun(self, elapsed: float, free: int, held: int) -> bool:
        """Whether the fault is at work: a leak from its first block, everything else from its level on."""
        if self.pattern == "leak":
            return held > 0 or self.level(free) == 0
        return elapsed >= self.ramp_seconds and held >= self.level(free)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The reverse. Raises TypeError."""
        return cls(**data)
