"""Requests of a worker as the leases see them: who of the coming step is selected, and how a batch is ordered."""

import logging
from collections.abc import Mapping
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.meant import is_meant
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm.book import Flight, RequestBook
from chaos_mm.agent.vllm.uncached import seen_by
from chaos_mm.core.blast_radius import RequestInfo

__all__ = ["Flights"]

logger = logging.getLogger("chaos_mm.agent")


class Flights:
    """The book beside the runtime. ``runner``: vLLM's, whose batch order the V1 runner keeps in ``input_batch``."""

    def __init__(self, runtime: Runtime, book: RequestBook, runner: Any) -> None:
        self.runtime, self.book, self._runner = runtime, book, runner
        self.scheduled: Mapping[str, int] = {}
        self.seen = -1
        """Generation of the board that the scheduler had seen when it made the coming step; -1: nothing was armed."""
        self.lost = False
        """A step was missed, so nobody knows any more which block is whose: from then on nobody is chosen."""
        self._infos: dict[str, RequestInfo] = {}

    def update(self, output: Any) -> None:
        """Take in the coming step, and forget who has finished."""
        self.book.update(output)
        self.scheduled, self.seen = output.num_scheduled_tokens, seen_by(output)
        for request_id in output.finished_req_ids:
            self._infos.pop(request_id, None)
            self.runtime.forget(request_id)

    def info(self, flight: Flight) -> RequestInfo:
        """What a selector is held against."""
        found = self._infos.get(flight.id)
        if found is None:
            found = RequestInfo(flight.id, "", modalities=frozenset((*flight.modalities, "text")))
            self._infos[flight.id] = found
        return found

    def canary(self, flight: Flight) -> bool:
        """Whether its id's mac proves it one."""
        return self.runtime.identify(flight.id).canary

    @property
    def under_arms(self) -> bool:
        """Whether anything was armed when the coming step was scheduled."""
        return self.seen >= 0

    def acts(self, armed: Armed) -> bool:
        """Whether the lease may act in the coming step at all: the scheduler knew of it, and shares nothing of whom it
        picks.
        """
        return not self.lost and armed.generation <= self.seen

    def chosen(self, armed: Armed) -> list[Flight]:
        """Who of the coming step the lease acts on, in the order of arrival."""
        if not self.acts(armed):
            return []
        return [flight for flight in self.book.stepping if armed.chosen(self.info(flight))]

    def strike(self, armed: Armed, value: Any, flight: Flight, part: str, site: str) -> None:
        """``armed.strike`` inside a step: the error of a fault's ``Raise`` leaves, and no other of ours."""
        try:
            armed.strike(value, flight.id, part, site)
        except Exception as error:
            if is_meant(error):
                raise
            logger.exception("lease %s: a strike failed", armed.name)

    def order(self) -> list[str]:
        """Request ids in the order of the batch that is being computed (V1 runner)."""
        return list(self._runner.input_batch.req_ids)

    def spans(self) -> dict[str, tuple[int, int]]:
        """Token rows of each request in that batch, half open (V1 runner)."""
        spans, start = {}, 0
        for request in self.order():
            spans[request] = (start, start := start + self.scheduled[request])
        return spans
