"""The only caller of a fault: select, draw, apply, count, contain errors.

A point asks once a request whether anything may act on it, plans with what the body holds, hands each part over, and
books the outcome. If a fault raises, the original value passes and ``errored`` counts: our bug must not become theirs.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Outcome, Target
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook
from chaos_mm.core.rng import Rng

logger = logging.getLogger("chaos_mm.injector")
Part = tuple[Target, str]


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
        return self._any(info, lambda lease: True)

    def may_change(self, info: RequestInfo) -> bool:
        """From the head alone: could a live lease change this request? Rate, mode and a dose of zero are known by then.

        A request that may be matched but never changed must reach the service whatever is wrong with it.
        """
        return self._any(info, lambda lease: _chosen(lease, info))

    def _any(self, info: RequestInfo, holds: Callable[[Lease], bool]) -> bool:
        live = self.book.live
        if not live:
            return False
        now = self.book.clock()
        return any(lease.live_at(now) and lease.spec.radius.selector.may_match(info) and holds(lease) for lease in live)

    def plan(self, info: RequestInfo) -> "Plan | None":
        """Count ``matched`` and pick the leases that act on this request; None when the original must pass.

        A lease matches when its selector holds and the request carries what its fault acts on.
        """
        now = self.book.clock()
        chosen = []
        for lease in self.book.live:
            if lease.live_at(now) and _meets(lease, info):
                lease.count_match()
                if _chosen(lease, info) and lease.reserve():
                    chosen.append(lease)
        return Plan(self.book, info, tuple(chosen)) if chosen else None


def _meets(lease: Lease, info: RequestInfo) -> bool:
    modality = lease.fault.row.modality
    return (not modality or modality in info.modalities) and lease.spec.radius.selector.matches(info)


def _chosen(lease: Lease, info: RequestInfo) -> bool:
    spec = lease.spec
    if spec.mode == "observe" or lease.fault.is_noop(spec.params):
        return False
    return spec.radius.hits(spec.seed, lease.name, info.id)


class Plan:
    """What is to be done to one request; used by one thread at a time, ended by ``commit`` or ``discard``."""

    def __init__(self, book: LeaseBook, info: RequestInfo, leases: tuple[Lease, ...]) -> None:
        self.info = info
        self._book, self._leases = book, leases
        self._changed: dict[Lease, dict[Part, dict[str, float]]] = {lease: {} for lease in leases}
        self._failed: set[Lease] = set()
        self._open = True

    @property
    def targets(self) -> frozenset[Target]:
        """What must be decoded at all."""
        return frozenset(lease.fault.target for lease in self._leases)

    @property
    def overtaken(self) -> bool:
        """Whether a lease that changed something has ended since: the original must be sent, at the last moment too."""
        now = self._book.clock()
        return any(parts and not lease.live_at(now) for lease, parts in self._changed.items())

    def changes(self) -> list[tuple[Lease, Mapping[Part, Mapping[str, float]]]]:
        """Each lease that has changed some part, with what each of its changes came to."""
        return [(lease, parts) for lease, parts in self._changed.items() if parts]

    def apply(self, target: Target, value: Any, part: str) -> Any:
        """Run the planned faults of that target in lease order; the very object back means unchanged."""
        for lease in self._leases:
            if lease.fault.target is target and lease.live_at(self._book.clock()):
                value = self._apply_one(lease, value, (target, part))
        return value

    def achieved(self, target: Target, part: str, figures: Mapping[str, float]) -> None:
        """Book the point's own measure of a part (after re-encoding), for every lease that changed that part."""
        for parts in self._changed.values():
            if (target, part) in parts:
                parts[target, part].update(_finite(figures))

    def undo(self, target: Target, part: str, reason: str) -> None:
        """A changed part could not be put back into the request, so its original goes out: ``errored`` counts."""
        for lease in self._leases:
            if lease.fault.target is target:
                self._changed[lease].pop((target, part), None)
                self._failed.add(lease)
        logger.debug("a part passes unchanged: %s", reason)

    def commit(self) -> None:
        """The request went out: count it, once, for each lease that changed some part of it."""
        self._settle({lease for lease, parts in self._changed.items() if parts})

    def discard(self, reason: str) -> None:
        """What was changed never reached the service: nothing is applied, and what failed counts as ``errored``."""
        logger.debug("a planned change was not made: %s", reason)
        self._settle(set())

    def _apply_one(self, lease: Lease, value: Any, part: Part) -> Any:
        spec, fault = lease.spec, lease.fault
        # The lease's name keeps two leases of one fault from drawing the same noise twice.
        rng = Rng.derive(spec.seed, self.info.id, part[1], f"{fault.name} {lease.name}")
        try:
            made = fault.apply(value, rng, **spec.params)
        except Exception as error:  # a fault may come from a third party: whatever it raises, the request must pass
            self._failed.add(lease)
            logger.error("%s failed on a part: %s", fault.name, type(error).__name__)
            return value
        made, figures = made if isinstance(made, Outcome) else (made, {})
        if made is not value:
            self._changed[lease][part] = _finite(figures)
        return made

    def _settle(self, changed: set[Lease]) -> None:
        if not self._open:
            raise RuntimeError("a plan is settled once")
        self._open = False
        now = self._book.clock()
        for lease in self._leases:
            lease.settle(now, lease in changed, lease in self._failed, _means(self._changed[lease]))


def _finite(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(figure) for name, figure in figures.items() if math.isfinite(figure)}


def _means(parts: Mapping[Part, Mapping[str, float]]) -> dict[str, float]:
    """Each figure's mean over the parts of one request, so that every request weighs the same."""
    gathered: dict[str, list[float]] = {}
    for figures in parts.values():
        for name, figure in figures.items():
            gathered.setdefault(name, []).append(figure)
    return {name: sum(found) / len(found) for name, found in gathered.items()}
