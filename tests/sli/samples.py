"""Records made by hand for the SLI tests."""

from typing import Any

from chaos_mm.sli.records import Record


def record(n: int = 0, at: float = 0.0, **fields: Any) -> Record:
    """A text canary that was due at ``at`` and answered right after 0.2 s, unless ``fields`` say otherwise."""
    answered = {
        "id": f"r{n}",
        "n": n,
        "scheduled_at": at,
        "sent_at": at,
        "first_token_at": at + 0.1,
        "last_token_at": at + 0.19,
        "ended_at": at + 0.2,
        "chunks": 4,
        "max_gap_seconds": 0.03,
        "status": 200,
        "finish_reason": "stop",
        "complete": True,
        "expected": "4072",
        "answer": "4072",
        "exact": True,
    }
    return Record(**{**answered, **fields})


def failed(n: int = 0, at: float = 0.0, error: str = "timeout", **fields: Any) -> Record:
    """A request that got no answer."""
    nothing = {"id": f"r{n}", "n": n, "scheduled_at": at, "sent_at": at, "ended_at": at + 10.0, "expected": "4072"}
    return Record(**{**nothing, "exact": False, "error": error, **fields})
