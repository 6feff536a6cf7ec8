"""All leases of one injection point: who holds it, what lives, how each ended."""

import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from chaos_mm.core.errors import (
    BadRequest,
    Forbidden,
    InvalidParams,
    LeaseConflict,
    NotInjectable,
    OwnedByAnother,
    Stopped,
    UnknownFault,
    UnknownLease,
)
from chaos_mm.core.fault import Fault, Point, Target
from chaos_mm.core.lease import Lease, LeaseSpec, check_fields

logger = logging.getLogger("chaos_mm.lease")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEEP_ENDED_SECONDS = 3600.0
_KEEP_OVERTAKEN_SECONDS = 60.0
_KEEP_ENDED_COUNT = 1000  # an hour of leases, bounded all the same


@dataclass(frozen=True)
class Limits:
    """What whoever started the point allows. ``max_rate`` caps the share of live traffic; canaries are free."""

    max_ttl_seconds: float = 3600.0
    allow_live: bool = False
    max_rate: float = 0.0
    max_owners: int = 1
    targets: frozenset[Target] = frozenset(Target)


class Actuator(Protocol):
    """What makes a lease real at a point whose faults do not wait for passing requests: the agent and the host.

    The book calls it under its lock, from any thread: each call returns within a quarter of a second.
    """

    def refusal(self, fault: Fault) -> str:
        """Why this point cannot run the fault now, by name; empty when it can."""

    def selectable(self, fault: Fault) -> bool:
        """Whether a selector can pick the requests it hurts here; otherwise it counts as live traffic."""

    def describe(self, fault: Fault) -> Mapping[str, Any]:
        """What ``GET /faults`` adds here: ``engine``, ``fatal`` (why a restart is needed, else empty) and so on."""

    def begin(self, lease: Lease) -> None:
        """Start the harm. Raises ChaosMMError when it cannot; the lease does not come to be then."""

    def renew(self, lease: Lease) -> None:
        """Its keepalive end was moved."""

    def finish(self, lease: Lease) -> None:
        """It has ended: stop the harm and begin the undo. Never raises; reports through ``lease.undo``."""


@runtime_checkable
class Patient(Actuator, Protocol):
    """An actuator that may be about to find out whether it can run a fault; without these it always knows."""

    def pending(self, fault: Fault) -> bool:
        """Whether its ``refusal`` says no more than that this is just being found out."""

    def settle(self, fault: Fault) -> None:
        """While ``pending``, wait; less than a second. The book calls it without its lock."""


class LeaseBook:
    """Thread-safe; ``live`` is an immutable snapshot that the hot path reads without a lock."""

    def __init__(
        self,
        catalogue: Mapping[str, Fault],
        *,
        point: Point,
        limits: Limits = Limits(),
        clock: Callable[[], float] = time.monotonic,
        actuator: Actuator | None = None,
    ) -> None:
        self.actuator = actuator
        self.catalogue, self.point, self.limits, self.clock = catalogue, point, limits, clock
        self.instance = secrets.token_hex(8)
        self.stopped = False
        self.live: tuple[Lease, ...] = ()
        self._all: dict[tuple[str, str], Lease] = {}
        self._released: dict[tuple[str, str], float] = {}
        self._stopped_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def armed(self) -> bool:
        """Whether any lease lives now."""
        live = self.live
        return bool(live) and any(lease.live_at(self.clock()) for lease in live)

    def put(self, name: str, body: Mapping[str, Any], arrived: float | None = None) -> Lease:
        """Create a lease, or renew the keepalive of the same one; the hard end never moves.

        ``arrived`` is when the request reached the point (default now): one that was released or stopped while it
        waited is refused, or it would arm what its owner believes gone. It may wait here too, while everybody else is
        answered: where the actuator is about to find out whether it can run the fault, at most a second.

        Raises Stopped, OwnedByAnother, LeaseConflict, UnknownFault, NotInjectable, Forbidden, InvalidParams.
        """
        if not _NAME.fullmatch(name):
            raise InvalidParams(f"lease name {name[:80]!r} is not allowed; it must be 1-64 of A-Z a-z 0-9 _ . -")
        arrived = self.clock() if arrived is None else arrived
        check_fields(body)
        fault = self._fault(body)
        spec = LeaseSpec.read(body, fault, self.limits.max_ttl_seconds)
        self._check_permission(fault, spec)
        fault.check_here(spec.params)
        with self._lock:
            now = self._expire()
            self._check_latch()
            self._check_overtaken(name, spec.owner, arrived)
            known = next((lease for lease in self.live if lease.name == name), None)
            if known is not None and known.spec.owner == spec.owner:
                return self._renew(known, spec, now)
            self._check_owner(spec.owner, now)
            if known is not None:
                raise LeaseConflict(f"lease {name!r} is held by {known.spec.owner}")
            return self._start(name, spec, fault, now)

    def keepalive(self, name: str, owner: str) -> Lease:
        """Push the dead-man's deadline out. Raises UnknownLease when it has ended, OwnedByAnother."""
        with self._lock:
            now = self._expire()
            lease = next((lease for lease in self.live if lease.name == name), None)
            if lease is None:
                raise UnknownLease(f"no live lease {name!r} at this {self.point}")
            if lease.spec.owner != owner:
                raise OwnedByAnother(self._held(lease, now))
            return self._touch(lease, now)

    def release(self, name: str, owner: str, force: bool = False) -> Lease | None:
        """End a lease; None when there is none (gone is success). Raises OwnedByAnother unless forced."""
        with self._lock:
            now = self._expire()
            self._released[name, owner] = now
            lease = next((lease for lease in self.live if lease.name == name), None)
            if lease is None:
                return self._all.get((name, owner))
            if lease.spec.owner != owner:
                if not force:
                    raise OwnedByAnother(self._held(lease, now))
                logger.warning("lease %s of %s is released by force by %s", name, lease.spec.owner, owner or "nobody")
            self._finish(lease, "release", now)
            return lease

    def stop(self) -> int:
        """End every lease and refuse new ones until ``clear_stop``; how many were ended."""
        with self._lock:
            now = self._expire()
            self.stopped, self._stopped_at = True, now
            ended = list(self.live)
            for lease in ended:
                self._finish(lease, "stop", now)
            return len(ended)

    def clear_stop(self) -> None:
        """Lift the stop latch."""
        self.stopped = False

    def close(self) -> None:
        """The process ends: so does every lease."""
        with self._lock:
            now = self._expire()
            for lease in list(self.live):
                self._finish(lease, "process", now)

    def expire(self) -> float:
        """End what is over and return the time; a timer calls it so that stamps and logs come without traffic."""
        with self._lock:
            return self._expire()

    def leases(self, owner: str = "") -> list[Lease]:
        """Every lease, live and ended within the hour, newest last."""
        with self._lock:
            self._expire()
            return [lease for lease in self._all.values() if owner in ("", lease.spec.owner)]

    def lease(self, name: str, owner: str = "") -> Lease:
        """The live lease of that name, else the newest ended one. Raises UnknownLease."""
        found = [lease for lease in self.leases(owner) if lease.name == name]
        if not found:
            raise UnknownLease(f"no lease {name!r} at this {self.point}")
        return next((lease for lease in found if not lease.ended_by), found[-1])

    def _fault(self, body: Mapping[str, Any]) -> Fault:
        name = body.get("fault")
        if not isinstance(name, str):
            raise BadRequest("fault must be the name of a fault")
        fault = self.catalogue.get(name)
        if fault is None:
            raise UnknownFault(f"no fault {name[:80]!r}; there are: {', '.join(sorted(self.catalogue))}")
        if self.point not in fault.points or fault.target not in self.limits.targets:
            where = ", ".join(fault.points)
            raise NotInjectable(f"{fault.name} acts on {fault.target} at {where}, which this {self.point} cannot do")
        if isinstance(self.actuator, Patient):
            self.actuator.settle(fault)
        if self.actuator is not None and (why := self.actuator.refusal(fault)):
            raise NotInjectable(f"{fault.name}: {why}")
        return fault

    def _selectable(self, fault: Fault) -> bool:
        return fault.selectable and (self.actuator is None or self.actuator.selectable(fault))

    def _check_permission(self, fault: Fault, spec: LeaseSpec) -> None:
        live = spec.radius.selector.live or not self._selectable(fault)
        if spec.radius.selector.live and fault.carries_content:
            raise Forbidden(f"{fault.name} carries content between requests: selector 'live' is refused, only canaries")
        if not live or spec.mode == "observe":
            return
        if not self.limits.allow_live:
            raise Forbidden(
                f"{fault.name}: this {self.point} hurts canaries only; live traffic needs --allow-live --max-rate there"
            )
        if spec.radius.rate > self.limits.max_rate:
            raise Forbidden(
                f"rate={spec.radius.rate:g} on live traffic is above this point's --max-rate {self.limits.max_rate:g}"
            )

    def _check_latch(self) -> None:
        if self.stopped:
            raise Stopped(f"this {self.point} was stopped by hand; 'chaos-mm stop --clear' lifts it")

    def _check_overtaken(self, name: str, owner: str, arrived: float) -> None:
        if arrived < max(self._released.get((name, owner), float("-inf")), self._stopped_at):
            raise LeaseConflict(
                f"lease {name!r} of {owner} was released while this request waited; nothing was injected"
            )

    def _check_owner(self, owner: str, now: float) -> None:
        others = [lease for lease in self.live if lease.spec.owner != owner]
        if len({lease.spec.owner for lease in others}) >= self.limits.max_owners:
            raise OwnedByAnother(self._held(others[0], now))

    def _held(self, lease: Lease, now: float) -> str:
        left = lease.hard_end - now
        why = f" ({lease.spec.reason})" if lease.spec.reason else ""
        return (
            f"this {self.point} is held by {lease.spec.owner}{why}: lease {lease.name!r} has {left:.0f} s left at most"
        )

    def _renew(self, lease: Lease, spec: LeaseSpec, now: float) -> Lease:
        if lease.spec != spec:
            raise LeaseConflict(f"lease {lease.name!r} of {spec.owner} lives with another body; release it first")
        return self._touch(lease, now)

    def _touch(self, lease: Lease, now: float) -> Lease:
        lease.last_keepalive_at, lease.keepalive_end = now, now + lease.spec.keepalive_seconds
        if self.actuator is not None:
            self.actuator.renew(lease)
        return lease

    def _start(self, name: str, spec: LeaseSpec, fault: Fault, now: float) -> Lease:
        lease = Lease(name, spec, fault, self.instance, now, now + spec.ttl_seconds, now + spec.keepalive_seconds)
        lease.last_keepalive_at = now
        if self.actuator is not None:
            self.actuator.begin(lease)
        self._all.pop((name, spec.owner), None)  # the newest of a name and owner stands last
        self._all[name, spec.owner] = lease
        self.live = (*self.live, lease)
        logger.info("lease %s: %s for %s, at most %g s", name, fault.name, spec.owner, spec.ttl_seconds)
        return lease

    def _finish(self, lease: Lease, reason: str, now: float) -> None:
        with lease.lock:
            lease.end(reason, now)
        self.live = tuple(other for other in self.live if other is not lease)
        if self.actuator is not None:
            self.actuator.finish(lease)
        logger.info(
            "lease %s of %s ended by %s, applied %d", lease.name, lease.spec.owner, lease.ended_by, lease.applied
        )

    def _expire(self) -> float:
        now = self.clock()
        for lease in self.live:
            with lease.lock:
                over = lease.expire(now) or bool(lease.ended_by)
            if over:
                self._finish(lease, lease.ended_by, lease.ended_at)
        old = [k for k, lease in self._all.items() if lease.ended_by and now - lease.ended_at > _KEEP_ENDED_SECONDS]
        ended = [k for k, lease in self._all.items() if lease.ended_by and k not in old]
        for key in old + ended[: max(0, len(ended) - _KEEP_ENDED_COUNT)]:
            del self._all[key]
        if len(self._released) > _KEEP_ENDED_COUNT:  # a request that old has long been answered
            self._released = {k: at for k, at in self._released.items() if now - at < _KEEP_OVERTAKEN_SECONDS}
        return now
