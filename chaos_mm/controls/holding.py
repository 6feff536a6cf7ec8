"""Waiting until a fault is at work: what ramps up, or waits for its request, begins later than its injection."""

from chaos_mm.controls.evidence import look_at
from chaos_mm.controls.run import Run

__all__ = ["await_hit"]

_LOOK_SECONDS = 0.5


def await_hit(run: Run, lease: str, seconds: float) -> bool:
    """Wait until a lease of the run has hit, at most so long; False when it has not, or the run is to stop.

    Ends early where there is nothing to wait for: a lease that nobody made, or that has ended.
    """
    held = run.leases.get(lease)
    until = run.clock() + seconds
    while held is not None:
        told = look_at(run, held)
        if told.get("applied", 0) > 0:
            return True
        left = until - run.clock()
        if left <= 0 or told.get("state") == "ended" or run.stop.wait(min(left, _LOOK_SECONDS)):
            return False
    return False
