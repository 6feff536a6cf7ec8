"""The only caller of a fault: select, draw, apply, count, contain errors.

A point asks once a request whether anything may act on it, plans with what the body holds, hands each part over, and
books the outcome. If a fault raises, the original value passes and ``errored`` counts: our bug must not become theirs.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Outcome, Target
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.core.rng import Rng

logger = logging.getLogger("chaos_mm.injector")


class Injector:
    """Reads the live leases of a book; safe to call from any thread."""

    def __init__(self, book: LeaseBook) -> None:
        self.book = book

    @property
    def armed(self) -> bool:
        """Whether any lease lives; without one a point takes its fast path."""
        return bool(self.book.live) and self.book.armed

    def may_match(self, info: RequestInfo) -> bool:
        """From the head alone: could a live lease select this request? When not, it streams through untouched."""
        live = self.book.live
        if not live:
            return False
        now = self.book.clock()
        return any(lease.live_at(now) and lease.spec.radius.selector.may_match(info) for lease in live)

    def plan(self, info: RequestInfo) -> "Plan | None":
        """Count ``matched`` and pick the leases that act on this request; None when the original must pass.

        A lease matches when its selector holds and the request carries what its fault acts on.
        """
        now = self.book.clock()
        chosen = []
        for lease in self.book.live:
            if lease.live_at(now) and _meets(lease, info):
                lease.count_match()
                if _acts(lease, info):
                    chosen.append(lease)
        return Plan(self.book, info, tuple(chosen)) if chosen else None


def _meets(lease: Lease, info: RequestInfo) -> bool:
    modality = lease.fault.row.modality
    return (not modality or modality in info.modalities) and lease.spec.radius.selector.matches(info)


def _acts(lease: Lease, info: RequestInfo) -> bool:
    spec = lease.spec
    if spec.mode == "observe" or lease.fault.is_noop(spec.params):
        return False
    return spec.radius.hits(spec.seed, lease.name, info.id) and lease.reserve()


class Plan:
    """What is to be done to one request; used by one thread at a time, ended by ``commit`` or ``discard``."""

    def __init__(self, book: LeaseBook, info: RequestInfo, leases: tuple[Lease, ...]) -> None:
        self.info = info
        self._book, self._leases = book, leases
        self._changed: set[Lease] = set()
        self._failed: set[Lease] = set()
        self._achieved: dict[Lease, dict[str, list[float]]] = {lease: {} for lease in leases}
        self._touched: dict[tuple[Target, str], list[Lease]] = {}
        self._open = True

    @property
    def targets(self) -> frozenset[Target]:
        """What must be decoded at all."""
        return frozenset(lease.fault.target for lease in self._leases)

    def apply(self, target: Target, value: Any, part: str) -> Any:
        """Run the planned faults of that target in lease order; the very object back means unchanged."""
        for lease in self._leases:
            if lease.fault.target is target:
                value = self._apply_one(lease, value, part)
        return value

    def achieved(self, target: Target, part: str, figures: Mapping[str, float]) -> None:
        """Book the point's own measure of a part (after re-encoding), for every lease that changed that part."""
        for lease in self._touched.get((target, part), ()):
            self._note(lease, figures)

    def commit(self) -> None:
        """The request went out changed: count it, once, for each lease that changed some part."""
        self._settle(self._changed)

    def discard(self, reason: str) -> None:
        """The request went out as it came, or not at all, though it was planned: count ``errored``."""
        self._failed.update(self._leases)
        logger.warning("request passed unchanged: %s", reason)
        self._settle(set())

    def _apply_one(self, lease: Lease, value: Any, part: str) -> Any:
        spec, fault = lease.spec, lease.fault
        rng = Rng.derive(spec.seed, self.info.id, part, fault.name)
        try:
            made = fault.apply(value, rng, **spec.params)
        except Exception as error:  # a fault may come from a third party: whatever it raises, the request must pass
            self._failed.add(lease)
            logger.error("%s failed on a part: %s", fault.name, type(error).__name__)
            return value
        made, figures = made if isinstance(made, Outcome) else (made, {})
        if made is not value:
            self._changed.add(lease)
            self._touched.setdefault((fault.target, part), []).append(lease)
            self._note(lease, figures)
        return made

    def _note(self, lease: Lease, figures: Mapping[str, float]) -> None:
        for name, figure in figures.items():
            if math.isfinite(figure):
                self._achieved[lease].setdefault(name, []).append(float(figure))

    def _settle(self, changed: set[Lease]) -> None:
        if not self._open:
            raise RuntimeError("a plan is settled once")
        self._open = False
        now = self._book.clock()
        for lease in self._leases:
            means = {name: sum(v) / len(v) for name, v in self._achieved[lease].items()}
            lease.settle(now, lease in changed, lease in self._failed, means)
