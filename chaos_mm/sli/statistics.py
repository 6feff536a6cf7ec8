"""The few statistics that verdicts rest on: score intervals for shares, and quantiles that refuse to guess."""

import math
from collections.abc import Sequence

Z_95 = 1.959963984540054  # the 97.5 % point of the standard normal distribution


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval for a share: (low, high) in 0 … 1; (0, 1) when nothing was tried.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927) 209-212.
    Unlike the Wald interval it keeps its coverage near 0 and 1, where a broken or a healthy service lives.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"wilson({successes}, {trials}): successes must be within 0 … trials")
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, z * z
    centre = share + z2 / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0 ≤ q ≤ 1) with linear interpolation: type 7 of Hyndman and Fan, 1996, as numpy's default."""
    if not values or not 0 <= q <= 1:
        raise ValueError(f"quantile of {len(values)} values at {q}: needs a value and 0 ≤ q ≤ 1")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (high - low) * (position - below)


def samples_needed(q: float) -> int:
    """Samples under which a q-quantile is a guess: 10 / (1 - q), so that ten lie beyond it (p95: 200)."""
    return math.ceil(round(10 / (1 - q), 6))
