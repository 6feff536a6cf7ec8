"""What a fault did to a canary, before and after, kept for the report: the first two requests of each lease.

Of canaries only, since their ids cannot be made without the token: nothing of a user's is ever kept. What is kept are
the bytes as they came and as they went out, for an hour, in bounded memory; they are decoded and drawn when asked for.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Final

from chaos_mm.core.fault import Target
from chaos_mm.core.injector import Plan
from chaos_mm.core.lease import Lease
from chaos_mm.proxy.bodies import Form, Part

PER_LEASE: Final = 2
MAX_BYTES: Final = 8 * 1024**2
KEEP_SECONDS: Final = 3600.0
_MOST_LEASES: Final = 1000
Edit = tuple[Part, bytes]
"""A part and what was put in its place."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One part of one canary as it stood in the body (`form`), before and after; `achieved` is that lease's damage."""

    lease: Lease
    request_id: str
    part: str
    target: Target
    form: Form
    before: bytes
    after: bytes
    achieved: Mapping[str, float]

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return getsizeof(self.before) + getsizeof(self.after)


@dataclass(slots=True)
class _Kept:
    """The samples of one lease with when each was kept, and how many were ever taken."""

    lease: Lease
    taken: int = 0
    samples: list[tuple[float, Sample]] = field(default_factory=list)

    @property
    def owner(self) -> str:
        return self.lease.spec.owner

    @property
    def size(self) -> int:
        return sum(sample.size for _, sample in self.samples)


class Samples:
    """Thread-safe. `count` is told "kept", or "no_room" for a sample that found none."""

    def __init__(
        self,
        count: Callable[[str], object],
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._max_bytes, self._clock = count, max_bytes, clock
        self._kept: dict[tuple[str, str], _Kept] = {}  # by owner and lease, the newest last
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of memory that all samples hold."""
        with self._lock:
            return self._size()

    def of(self, plan: Plan, body: bytes, edits: Sequence[Edit]) -> Callable[[], None]:
        """What to call once the plan is committed; `edits` were made in that body."""
        if not plan.info.canary:
            return _nothing
        found = [sample for sample in _samples(plan, body, edits, self._wants) if self._fits(sample.size)]
        return partial(self.keep, found) if found else _nothing

    def keep(self, samples: Iterable[Sample]) -> None:
        """Keep those of leases that have fewer than two, if need be in place of older runs' samples."""
        with self._lock:
            now = self._expire()
            for sample in samples:
                self._keep(sample, now)

    def run(self, owner: str) -> list[Sample]:
        """The samples of a run, by lease in the order of their first samples."""
        with self._lock:
            self._expire()
            return [sample for kept in self._kept.values() if kept.owner == owner for _, sample in kept.samples]

    def expire(self) -> None:
        """Let go of what is older than an hour; a timer calls it."""
        with self._lock:
            self._expire()

    def _wants(self, lease: Lease) -> bool:
        kept = self._kept.get((lease.spec.owner, lease.name))
        return kept is None or kept.lease is not lease or kept.taken < PER_LEASE

    def _fits(self, size: int) -> bool:
        if size > self._max_bytes:
            self._count("no_room")
        return size <= self._max_bytes

    def _keep(self, sample: Sample, now: float) -> None:
        lease, key = sample.lease, (sample.lease.spec.owner, sample.lease.name)
        kept = self._kept.get(key)
        if kept is None or kept.lease.started_at < lease.started_at:
            self._kept.pop(key, None)
            kept = self._kept[key] = _Kept(lease)
        if kept.lease is not lease or kept.taken >= PER_LEASE:
            return
        if not self._make_room(sample):
            self._count("no_room")
            return
        kept.taken += 1
        kept.samples.append((now, sample))
        self._count("kept")

    def _make_room(self, sample: Sample) -> bool:
        """Drop the oldest of the other runs, whole, until there is room; nothing when that would not do."""
        own = sample.lease.spec.owner
        if sum(kept.size for kept in self._kept.values() if kept.owner == own) + sample.size > self._max_bytes:
            return False
        while self._size() + sample.size > self._max_bytes:
            oldest = self._oldest(own)
            for kept in self._kept.values():
                if kept.owner == oldest:
                    kept.samples.clear()  # how many were taken stays, or two runs would oust each other for ever
        return True

    def _oldest(self, own: str) -> str:
        """Which other run kept its newest sample first."""
        newest: dict[str, float] = {}
        for kept in self._kept.values():
            if kept.samples and kept.owner != own:
                newest[kept.owner] = max(newest.get(kept.owner, float("-inf")), kept.samples[-1][0])
        return min(newest, key=lambda owner: newest[owner])

    def _size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def _expire(self) -> float:
        now = self._clock()
        for kept in self._kept.values():
            kept.samples = [(at, sample) for at, sample in kept.samples if now - at < KEEP_SECONDS]
        for key in list(self._kept)[: max(0, len(self._kept) - _MOST_LEASES)]:
            del self._kept[key]
        return now


def _nothing() -> None:
    """For a request of which nothing is kept."""


def _samples(plan: Plan, body: bytes, edits: Sequence[Edit], wanted: Callable[[Lease], bool]) -> Iterator[Sample]:
    """For each wanted lease the first part that it changed."""
    for lease, parts in plan.changes():
        mine = (edit for edit in edits if (edit[0].target, edit[0].name) in parts) if wanted(lease) else iter(())
        for part, after in mine:
            before, achieved = body[part.span.start : part.span.end], dict(parts[part.target, part.name])
            yield Sample(lease, plan.info.id, part.name, part.target, part.form, before, after, achieved)
            break
