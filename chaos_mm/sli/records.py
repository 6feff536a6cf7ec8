"""One request of the load, as it travels: a flat object, one line of NDJSON, numbers finite.

Times are seconds of the load's own monotonic clock; nothing compares clocks of two machines. Latency counts from
``scheduled_at``, the moment the request was due, so a slow service cannot hide by slowing the client (coordinated
omission). Media are never part of a record; the question, the code and the answer of our own canaries are.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

AUDIENCES = ("canary", "bystander")
MODALITIES = ("image", "audio", "text", "agreement")
KINDS = ("image", "colour", "audio", "text", "agreement")
# What a kind of canary puts to the test: the word that SLIs filter by.
MODALITY: Mapping[str, str] = {
    "image": "image",
    "colour": "image",
    "audio": "audio",
    "text": "text",
    "agreement": "agreement",
}
PHASES = ("baseline", "fault", "recovery", "end")


@dataclass(frozen=True, slots=True)
class Record:
    """A request and what came of it.

    ``error`` is "" for a request that was answered in full and in time, else one word: timeout, connect, status, cut,
    stream, protocol, too_large, overload (the in-flight cap of the load was reached: never sent), load (our own fault)
    or open (no answer so far; never in a file or in ``/records``). ``exact`` is None when there was nothing to judge
    against. ``timeout_seconds`` is what a miss counts as.
    """

    id: str
    n: int = 0
    session: str = ""
    traffic: str = ""
    audience: str = "canary"
    kind: str = "text"
    modality: str = "text"
    run: str = ""
    phase: str = ""
    scheduled_at: float = 0.0
    sent_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float = 0.0
    lag_seconds: float = 0.0
    max_gap_seconds: float | None = None
    chunks: int = 0
    status: int = 0
    finish_reason: str = ""
    complete: bool = False
    error: str = ""
    timeout_seconds: float = 10.0
    request_bytes: int = 0
    response_bytes: int = 0
    question: str = ""
    expected: str = ""
    answer: str = ""
    exact: bool | None = None
    leak: bool = False

    @property
    def ok(self) -> bool:
        """Answered with status 200, complete, in time."""
        return not self.error

    @property
    def e2e_seconds(self) -> float:
        """Scheduled to last byte; a miss counts as the timeout."""
        return self.ended_at - self.scheduled_at if self.ok else self.timeout_seconds

    @property
    def ttft_seconds(self) -> float | None:
        """Scheduled to first content token; a miss counts as the timeout; None when the answer was not streamed."""
        if not self.ok:
            return self.timeout_seconds
        return None if self.first_token_at is None else self.first_token_at - self.scheduled_at

    @property
    def itl_seconds(self) -> float | None:
        """(last - first) / (chunks - 1), the inter-token latency of one request; None under two chunks.

        The definition of vLLM's and NVIDIA's benchmarks for time per output token, with stream chunks as tokens.
        """
        if not self.ok:
            return self.timeout_seconds
        if self.first_token_at is None or self.last_token_at is None or self.chunks < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (self.chunks - 1)

    @property
    def gap_seconds(self) -> float | None:
        """The longest silence between two content chunks; a miss counts as the timeout."""
        return self.max_gap_seconds if self.ok else self.timeout_seconds

    def to_json(self) -> dict[str, Any]:
        """The object of one NDJSON line; ``ok`` is added for readers."""
        return {**{name: getattr(self, name) for name in _CHECKS}, "ok": self.ok}

    def to_line(self) -> bytes:
        """One line of strict JSON with its newline; a number that is not finite is an error, never a line."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False).encode() + b"\n"

    @classmethod
    def from_json(cls, found: object) -> "Record":
        """Read one object. Raises ValueError naming the field, what it was and what it must be; extra fields pass."""
        if not isinstance(found, Mapping):
            raise ValueError(f"a record must be an object, not {type(found).__name__}")
        if "id" not in found:
            raise ValueError("a record must have an id")
        values = {name: _checked(name, found[name]) for name in _CHECKS if name in found}
        return cls(**values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63


def _optional(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


_BY_TYPE: dict[object, tuple[Callable[[object], bool], str]] = {
    str: (_is_text, "text"),
    bool: (_is_flag, "true or false"),
    int: (_is_whole, "a whole number"),
    float: (_is_number, "a finite number"),
    float | None: (_optional(_is_number), "a finite number or null"),
    bool | None: (_optional(_is_flag), "true, false or null"),
}
_CHECKS = {field.name: _BY_TYPE[field.type] for field in fields(Record)}
_WORDS: dict[str, tuple[str, ...]] = {
    "audience": AUDIENCES,
    "kind": KINDS,
    "modality": MODALITIES,
    "phase": ("", *PHASES),
}


def _checked(name: str, value: Any) -> Any:
    check, allowed = _CHECKS[name]
    if not check(value):
        raise ValueError(f"record field {name} is {value!r:.60}; it must be {allowed}")
    if name in _WORDS and value not in _WORDS[name]:
        raise ValueError(f"record field {name} is {value!r:.60}; allowed: {', '.join(_WORDS[name])}")
    return value


def parse(objects: object) -> tuple[list[Record], int]:
    """(records, unreadable): read what can be read of an iterable of records or objects; never raises."""
    records: list[Record] = []
    unreadable = 0
    for found in objects if isinstance(objects, (list, tuple)) else ():
        try:
            records.append(found if isinstance(found, Record) else Record.from_json(found))
        except ValueError:
            unreadable += 1
    return records, unreadable
