"""Who wants which traffic, and until when: traffic of a dead owner ends by itself.

The rules are those of a lease: the same owner with the same body is a keepalive and never moves the hard end, another
body is refused while the first lives.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chaos_mm.core.errors import BadRequest, InvalidParams, LeaseConflict
from chaos_mm.load.canaries import read_mix

BACKGROUND = "background"
MAX_OWNERS = 16
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FIELDS = ("rate", "mix", "bystanders", "arrivals", "ttl_seconds", "keepalive_seconds")
ARRIVALS = ("poisson", "constant")


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """``rate`` requests a second, of which the share ``bystanders`` goes out under ordinary ids."""

    rate: float
    mix: Mapping[str, float]
    bystanders: float = 0.3
    arrivals: str = "poisson"


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """What whoever started the load allows."""

    max_rate: float = 200.0
    max_ttl_seconds: float = 3600.0
    min_keepalive_seconds: float = 5.0


@dataclass(slots=True)
class Traffic:
    """The traffic of one owner. ``ended_by``: "" while it flows, else release, ttl or keepalive."""

    owner: str
    spec: TrafficSpec
    started_at: float
    hard_end: float
    keepalive_seconds: float
    keepalive_end: float
    ended_by: str = ""

    def to_json(self, now: float) -> dict[str, Any]:
        """For ``GET /status`` and the answer to PUT."""
        return {
            "owner": self.owner,
            "rate": self.spec.rate,
            "mix": dict(self.spec.mix),
            "bystanders": self.spec.bystanders,
            "arrivals": self.spec.arrivals,
            "state": "ended" if self.ended_by else "live",
            "ended_by": self.ended_by,
            "expires_in_seconds": _left(self.hard_end, now),
            "keepalive_in_seconds": _left(self.keepalive_end, now),
        }


def _left(end: float, now: float) -> float | None:
    return round(max(0.0, end - now), 3) if math.isfinite(end) else None


class TrafficBook:
    """Thread-safe. ``defaults`` stand in for fields that a body leaves out."""

    def __init__(
        self,
        defaults: TrafficSpec,
        limits: TrafficLimits = TrafficLimits(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._defaults, self._limits, self._clock = defaults, limits, clock
        self._lock = threading.Lock()
        self._all: dict[str, Traffic] = {}

    def background(self, spec: TrafficSpec) -> None:
        """Traffic that flows until the process ends."""
        now = self._clock()
        with self._lock:
            self._all[BACKGROUND] = Traffic(BACKGROUND, spec, now, math.inf, math.inf, math.inf)

    def put(self, owner: str, body: Mapping[str, Any]) -> Traffic:
        """Start or renew an owner's traffic. Raises BadRequest, InvalidParams, LeaseConflict."""
        if not _OWNER.fullmatch(owner) or owner == BACKGROUND:
            raise BadRequest(f"owner is {owner[:80]!r}; allowed: 1–64 of A-Z a-z 0-9 _ . -, not {BACKGROUND!r}")
        for name in body:
            if name not in _FIELDS:
                raise BadRequest(f"field {name[:40]!r} is unknown; allowed: {', '.join(_FIELDS)}")
        spec = self._spec(body)
        ttl = _number(body, "ttl_seconds", 600.0, 1.0, self._limits.max_ttl_seconds)
        keepalive = _number(body, "keepalive_seconds", 10.0, self._limits.min_keepalive_seconds, ttl)
        with self._lock:
            now = self._expire()
            old = self._all.get(owner)
            if old is not None and not old.ended_by:
                return _renew(old, spec, ttl, keepalive, now)
            if old is None and len(self._all) >= MAX_OWNERS:
                self._forget_one()
            fresh = Traffic(owner, spec, now, now + ttl, keepalive, now + keepalive)
            self._all[owner] = fresh
            return fresh

    def delete(self, owner: str) -> bool:
        """End an owner's traffic; False when there was none. Gone is success."""
        if owner == BACKGROUND:
            raise BadRequest("background traffic ends with the process; start the load without --background-rate")
        with self._lock:
            self._expire()
            found = self._all.get(owner)
            if found is None or found.ended_by:
                return False
            found.ended_by = "release"
            return True

    def live(self) -> list[Traffic]:
        """Whose traffic flows now."""
        with self._lock:
            self._expire()
            return [traffic for traffic in self._all.values() if not traffic.ended_by]

    def shown(self) -> list[dict[str, Any]]:
        """Every owner's traffic, live and ended."""
        with self._lock:
            now = self._expire()
            return [traffic.to_json(now) for traffic in self._all.values()]

    def _spec(self, body: Mapping[str, Any]) -> TrafficSpec:
        own = self._defaults
        arrivals = body.get("arrivals", own.arrivals)
        if arrivals not in ARRIVALS:
            raise BadRequest(f"arrivals is {arrivals!r:.40}; allowed: {', '.join(ARRIVALS)}")
        return TrafficSpec(
            rate=_number(body, "rate", own.rate, 0.01, self._limits.max_rate),
            mix=read_mix(body["mix"]) if "mix" in body else own.mix,
            bystanders=_number(body, "bystanders", own.bystanders, 0.0, 1.0),
            arrivals=arrivals,
        )

    def _expire(self) -> float:
        now = self._clock()
        for traffic in self._all.values():
            if not traffic.ended_by and now >= min(traffic.hard_end, traffic.keepalive_end):
                traffic.ended_by = "ttl" if traffic.hard_end <= traffic.keepalive_end else "keepalive"
        return now

    def _forget_one(self) -> None:
        ended = next((owner for owner, traffic in self._all.items() if traffic.ended_by), None)
        if ended is None:
            raise LeaseConflict(f"{MAX_OWNERS} owners have traffic here; one of them has to end first")
        del self._all[ended]


def _renew(old: Traffic, spec: TrafficSpec, ttl: float, keepalive: float, now: float) -> Traffic:
    same_ends = math.isclose(old.hard_end - old.started_at, ttl) and math.isclose(old.keepalive_seconds, keepalive)
    if old.spec != spec or not same_ends:
        raise LeaseConflict(f"traffic of {old.owner} flows with another body; DELETE it first")
    old.keepalive_end = now + keepalive
    return old


def _number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InvalidParams(f"{name} is {value!r:.40}; allowed: a number from {low:g} to {high:g}")
    return float(value)
