"""A lease is an injection with an end; it lives in the process that does the harm, on that process's clock.

It ends by release, by its time to live, by a lost keepalive, by its limit, by the stop latch, or with the process,
whichever comes first, whatever becomes of the run that asked for it.
"""

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos_mm.core.blast_radius import BlastRadius
from chaos_mm.core.errors import BadRequest, InvalidParams
from chaos_mm.core.fault import Fault
from chaos_mm.core.params import ParamSpec

MIN_KEEPALIVE_SECONDS = 5.0  # under this, a stalled disk or a busy core ends good runs (measured)
_FIELDS = frozenset(
    ("owner", "reason", "fault", "params", "blast_radius", "ttl_seconds", "keepalive_seconds")
    + ("seed", "mode", "severity")
)
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_REASON = ParamSpec("reason", str, "", "why, for whoever finds it")
_KEEPALIVE = ParamSpec("keepalive_seconds", float, 10.0, "dead-man's switch", MIN_KEEPALIVE_SECONDS, 600, "s")
_SEED = ParamSpec("seed", int, 0, "seed of every draw", ge=0, le=2**63 - 1)
_MODE = ParamSpec("mode", str, "inject", "observe matches and counts and harms nothing", choices=("inject", "observe"))
_SEVERITY = ParamSpec("severity", int, 0, "preset; 0 is none", ge=0, le=5)


@dataclass(frozen=True)
class LeaseSpec:
    """What was asked for, checked. Two bodies are the same lease when their specs are equal."""

    owner: str
    reason: str
    fault: str
    params: Mapping[str, Any]
    radius: BlastRadius
    ttl_seconds: float
    keepalive_seconds: float
    seed: int
    mode: str

    @classmethod
    def read(cls, body: Mapping[str, Any], fault: Fault, max_ttl_seconds: float) -> "LeaseSpec":
        """Check a PUT body. Raises InvalidParams naming field, value and what is allowed."""
        ttl = ParamSpec("ttl_seconds", float, 60.0, "hard end", 0.1, max_ttl_seconds, "s (this point's cap)")
        severity = _field(body, _SEVERITY)
        return cls(
            owner=_owner(body),
            reason=_reason(body),
            fault=fault.name,
            params=fault.bind(_mapping(body, "params"), severity),
            radius=BlastRadius.from_json(_mapping(body, "blast_radius")),
            ttl_seconds=_field(body, ttl),
            keepalive_seconds=_field(body, _KEEPALIVE),
            seed=_field(body, _SEED),
            mode=_field(body, _MODE),
        )


def check_fields(body: Mapping[str, Any]) -> None:
    """Refuse a PUT body with a field that no lease has. Raises InvalidParams."""
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise InvalidParams(f"unknown field {unknown[0]!r}; a lease takes {', '.join(sorted(_FIELDS))}")


def _field(body: Mapping[str, Any], spec: ParamSpec) -> Any:
    try:
        return spec.check(body.get(spec.name, spec.default))
    except ValueError as error:
        raise InvalidParams(str(error)) from None


def _owner(body: Mapping[str, Any]) -> str:
    owner = body.get("owner", "")
    if not isinstance(owner, str) or not _OWNER.fullmatch(owner):
        raise InvalidParams(
            f"owner={str(owner)[:60]!r} is not allowed; it must be a run's id, 1-64 of A-Z a-z 0-9 _ . : -"
        )
    return owner


def _reason(body: Mapping[str, Any]) -> str:
    reason: str = _field(body, _REASON)
    if not reason.isprintable():  # it stands in logs and terminals
        raise InvalidParams(f"reason={reason[:60]!r} is not allowed; it must be one line of printable text")
    return reason


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name, {})
    if not isinstance(value, Mapping):
        raise BadRequest(f"{name} must be a JSON object, not {type(value).__name__}")
    return value


@dataclass
class Tally:
    """Count, sum, smallest and largest of one achieved figure."""

    count: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, value: float) -> None:
        """Fold one finite figure in."""
        self.count += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def to_json(self) -> dict[str, float]:
        """Strict JSON."""
        return {"count": self.count, "mean": self.total / self.count, "min": self.low, "max": self.high}


@dataclass(frozen=True)
class Undo:
    """How far the undo of a lease is, where ending it is not enough. Replaced as a whole, never changed.

    ``pending``: still at work, so the lease is residue; ``proven``: what stood there stands there again; ``figures``:
    counts such as ``restored_elements`` and ``invalidated_blocks``; ``reason``: why it is not proven.
    """

    pending: bool = True
    proven: bool = False
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"pending": self.pending, "proven": self.proven, "reason": self.reason, "figures": dict(self.figures)}


@dataclass(eq=False)
class Lease:
    """One injection: its spec, its two deadlines on the point's monotonic clock, and its evidence.

    ``sites``: how often it acted at each named place (layer, module, block pool); ``engine``: what the point says of
    the engine that is hurt (backend, ``fatal`` where it must be restarted); ``undo``: None where its end undoes all.
    """

    name: str
    spec: LeaseSpec
    fault: Fault
    instance: str
    started_at: float
    hard_end: float
    keepalive_end: float
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    ended_by: str = ""
    ended_at: float = 0.0
    last_keepalive_at: float = 0.0
    first_applied_at: float | None = None
    last_applied_at: float | None = None
    matched: int = 0
    applied: int = 0
    errored: int = 0
    reserved: int = 0
    achieved: dict[str, Tally] = field(default_factory=dict)
    sites: dict[str, int] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    undo: "Undo | None" = None

    def deadline(self) -> float:
        """When it ends by itself."""
        return min(self.hard_end, self.keepalive_end)

    def live_at(self, now: float) -> bool:
        """Whether it may still harm."""
        return not self.ended_by and now < self.deadline()

    def end(self, reason: str, at: float) -> None:
        """End it once; later reasons do not overwrite the first."""
        if not self.ended_by:
            self.ended_by, self.ended_at = reason, at

    def expire(self, now: float) -> bool:
        """End it when a deadline has passed; the stamp is the deadline, since no request was changed after it."""
        if self.ended_by or now < self.deadline():
            return False
        self.end("ttl" if self.hard_end <= self.keepalive_end else "keepalive", self.deadline())
        return True

    def reserve(self) -> bool:
        """Claim one of the ``limit`` changes for a request; give it back with ``settle``."""
        limit = self.spec.radius.limit
        with self.lock:
            if limit and self.applied + self.reserved >= limit:
                return False
            self.reserved += 1
            return True

    def count_match(self) -> None:
        """One more request the selector met."""
        with self.lock:
            self.matched += 1

    def settle(self, now: float, changed: bool, failed: bool, achieved: Mapping[str, float]) -> None:
        """Book how a reserved request ended: changed, failed, or passed as it was."""
        with self.lock:
            self.reserved -= 1
            self.errored += failed
            if not changed:
                return
            self.applied += 1
            self.last_applied_at = now
            self.first_applied_at = now if self.first_applied_at is None else self.first_applied_at
            for name, value in achieved.items():
                self.achieved.setdefault(name, Tally()).add(value)
            limit = self.spec.radius.limit
            if limit and self.applied >= limit and not self.expire(now):
                self.end("limit", now)

    def to_json(self, now: float) -> dict[str, Any]:
        """Strict JSON for ``GET /leases``; stamps are seconds on the point's monotonic clock, ``now`` among them."""
        with self.lock:
            self.expire(now)
            live = not self.ended_by
            return {
                "name": self.name,
                "fault": self.fault.name,
                "owner": self.spec.owner,
                "reason": self.spec.reason,
                "params": dict(self.spec.params),
                "blast_radius": self.spec.radius.to_json(),
                "mode": self.spec.mode,
                "seed": self.spec.seed,
                "state": "live" if live else "undoing" if self.undo is not None and self.undo.pending else "ended",
                "ended_by": self.ended_by,
                "ttl_seconds": self.spec.ttl_seconds,
                "keepalive_seconds": self.spec.keepalive_seconds,
                "expires_in_seconds": max(0.0, self.hard_end - now) if live else 0.0,
                "keepalive_in_seconds": max(0.0, self.keepalive_end - now) if live else 0.0,
                "matched": self.matched,
                "applied": self.applied,
                "errored": self.errored,
                "achieved": {name: tally.to_json() for name, tally in sorted(self.achieved.items())},
                "sites": dict(self.sites),
                "engine": dict(self.engine),
                "undo": None if self.undo is None else self.undo.to_json(),
                "started_at": self.started_at,
                "ended_at": self.ended_at if self.ended_by else None,
                "last_keepalive_at": self.last_keepalive_at,
                "first_applied_at": self.first_applied_at,
                "last_applied_at": self.last_applied_at,
                "now": now,
                "instance": self.instance,
            }
