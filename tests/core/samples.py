"""A tiny catalogue and clock for the tests of the frame: real declarations, no real media."""

from typing import Annotated, Any, Literal

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@fault(Target.TEXT, dose="count", presets={1: {"count": 1}, 3: {"count": 3}})
def text_append(
    text: Any,
    rng: Rng,
    *,
    count: Annotated[int, Param("letters to append", ge=0, le=9)] = 1,
    letter: Annotated[Literal["x", "y"], Param("which letter")] = "x",
) -> Any:
    """Append letters."""
    return Outcome(text + letter * count, {"appended": float(count)})


@fault(Target.TEXT)
def text_break(text: Any, rng: Rng, *, share: Annotated[float, Param("unused", ge=0, le=1)] = 0.5) -> Any:
    """Raise, as a buggy third-party fault does."""
    raise ZeroDivisionError("secret words of a user")


@fault(Target.TEXT)
def text_draw(text: Any, rng: Rng, *, digits: Annotated[int, Param("how many", ge=1, le=9)] = 9) -> Any:
    """Append a random word."""
    return f"{text} {rng.random():.{digits}f}"


@fault(Target.IMAGE)
def image_same(image: Any, rng: Rng, *, amount: Annotated[float, Param("unused", ge=0)] = 1.0) -> Any:
    """Change nothing."""
    return image


@fault(Target.MEDIA_POOL)
def media_pool_swap(part: Any, rng: Rng, *, depth: Annotated[int, Param("how far back", ge=1, le=9)] = 1) -> Any:
    """Stand for a fault that carries content from one request into another."""
    return part


CATALOGUE = {f.name: f for f in (text_append, text_break, text_draw, image_same, media_pool_swap)}


def body(owner: str = "run-a", fault: str = "text_append", **fields: Any) -> dict[str, Any]:
    """A lease body with sensible defaults."""
    return {"owner": owner, "fault": fault, "ttl_seconds": 60, "keepalive_seconds": 10, **fields}


def request(request_id: str = "q1", canary: bool = True, **fields: Any) -> RequestInfo:
    """A text request of a canary."""
    fields.setdefault("modalities", frozenset({"text"}))
    return RequestInfo(request_id, fields.pop("path", "/v1/chat/completions"), canary=canary, **fields)
