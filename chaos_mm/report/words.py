"""The words a run may end with, worst first, and the exit status each stands for.

The first that is true is the run's verdict; all that were true are listed beside it. ``expect`` never changes a word.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["EXIT_CODES", "MEANINGS", "USAGE_EXIT", "WORDS", "first", "highest"]

MEANINGS: Final = {
    "not_restored": "a fault was left behind, or the target did not come back",
    "error": "our part, the file or the command line is wrong, a lease ended before its release, or a rollback failed",
    "interrupted": "a signal or a person stopped it",
    "not_steady": "the service was not at its steady state before anything was injected, or that could not be told",
    "not_applied": "a fault was not injected, or a point that was needed is absent, stopped or another's",
    "not_exercised": "the fault hit too few requests, or achieved too little, to have tested anything",
    "halted": "a guard stopped it",
    "deviated": "an objective was not met in its worst window",
    "no_data": "an objective had not enough samples in a phase",
    "passed": "injected, hit, measured, undone, and every objective was met in every window",
    "dry": "a dry run: nothing of ours ran",
}
WORDS: Final = tuple(MEANINGS)
EXIT_CODES: Final = {
    "passed": 0,
    "dry": 0,
    "deviated": 1,
    "halted": 1,
    "not_steady": 3,
    "not_applied": 3,
    "not_exercised": 3,
    "no_data": 3,
    "interrupted": 4,
    "error": 4,
    "not_restored": 5,
}
USAGE_EXIT: Final = 2


def first(true: Iterable[str]) -> str:
    """The verdict: the first word of the table that is true. Raises ValueError when none is, or one is no word."""
    found = set(true)
    unknown = found - set(WORDS)
    if unknown or not found:
        raise ValueError(f"words are {sorted(found)}; allowed: one or more of {', '.join(WORDS)}")
    return next(word for word in WORDS if word in found)


def highest(codes: Iterable[int]) -> int:
    """The exit status of several runs; 0 for none."""
    return max(codes, default=0)
