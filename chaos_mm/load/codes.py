"""Codes that cannot be mistaken for each other: each differs from the last few in at least three of four digits.

An answer that is *another* request's code is a leak. Were codes drawn freely, a wrong answer under a fault would be
one now and then by chance. Most wrong answers miss a digit or two of their own code, so with this distance between
neighbours they cannot be a neighbour's; what is left is 8 in 10,000 for an answer that is noise altogether.
"""

from collections import deque
from collections.abc import Sequence

from chaos_mm.core.rng import Rng
from chaos_mm.sli.answers import CODE_DIGITS

DISTANCE = 3
NEIGHBOURS = 8


class Codes:
    """An endless, seeded sequence of 4-digit codes; ``next`` is not thread-safe."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed, self._name, self._drawn = seed, name, 0
        self._last: deque[str] = deque(maxlen=NEIGHBOURS)

    def next(self) -> str:
        """The next code, e.g. "0715"."""
        rng = Rng.derive(self._seed, f"{self._name}-{self._drawn}", "code", "canary")
        self._drawn += 1
        while True:  # eight neighbours exclude at most 8 · 523 of 10,000 codes, so this ends
            code = random_code(rng)
            if all(distance(code, other) >= DISTANCE for other in self._last):
                self._last.append(code)
                return code


def random_code(rng: Rng) -> str:
    """Four uniform digits."""
    return f"{rng.integer(0, 10**CODE_DIGITS):0{CODE_DIGITS}d}"


def near_miss(code: str, rng: Rng) -> str:
    """Another code: half of the time one digit off, else drawn freely."""
    while True:
        other = list(code) if rng.random() < 0.5 else list(random_code(rng))
        other[rng.integer(0, CODE_DIGITS)] = str(rng.integer(0, 10))
        if "".join(other) != code:
            return "".join(other)


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Places in which two codes differ (Hamming distance)."""
    return sum(left != right for left, right in zip(a, b, strict=True))
