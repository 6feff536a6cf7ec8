"""When requests are due: scheduled ahead, whatever becomes of the earlier ones.

An open loop is the only kind whose load does not sink when the service slows (Schroeder, Wierman and Harchol-Balter,
"Open versus closed: a cautionary tale", NSDI 2006).
"""

import math
from collections.abc import Iterator

from chaos_mm.core.rng import Rng


def due_times(kind: str, rate: float, start: float, rng: Rng) -> Iterator[float]:
    """Endless due times in seconds from ``start`` on, ``rate`` a second.

    ``poisson``: independent exponential gaps, as independent users arrive. ``constant``: one every 1 / rate seconds,
    beginning one gap after ``start``.
    """
    count = 0
    due = start
    while True:
        count += 1
        # A sum of gaps for Poisson; a product for constant, so that no rounding piles up.
        due = start + count / rate if kind == "constant" else due - math.log1p(-rng.random()) / rate
        yield due
