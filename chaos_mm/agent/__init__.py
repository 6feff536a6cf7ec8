"""The agent: faults inside a running engine, armed by lease through a page of memory that its processes share.

``from chaos_mm.agent import attach`` starts it in one's own process.
"""

from typing import Any

__all__ = ["attach"]


def __getattr__(name: str) -> Any:
    if name == "attach":
        from chaos_mm.agent.transformers.process import attach

        return attach
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
