"""What a fault asked to leave into the engine is marked where it is raised; every other error is the agent's own.

The mark is on the exception itself, so that it says the same in whatever thread and through however many frames.
"""

from typing import Final

__all__ = ["is_meant", "meant"]

_MARK: Final = "chaos_mm_meant"


def meant(error: Exception) -> Exception:
    """The error, marked as one that a fault asked for."""
    setattr(error, _MARK, True)
    return error


def is_meant(error: BaseException) -> bool:
    """Whether a fault asked for it."""
    return getattr(error, _MARK, False) is True
