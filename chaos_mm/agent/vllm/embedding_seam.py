"""Faults on what a worker merges into prompts."""

import logging
from collections.abc import Sequence
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.measuring import Measures, Reference
from chaos_mm.agent.vllm.book import Flight
from chaos_mm.agent.vllm.embeddings import MOST_OUTPUTS, MergedEmbedding, Rows, joined, replaced, rows_by_request
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.taint import Taint, lease_key
from chaos_mm.core.fault import Seam

__all__ = ["EmbeddingSeam"]

logger = logging.getLogger("chaos_mm.agent")


class EmbeddingSeam:
    """``see`` stands before the merge; unarmed it works until the clean reference is full, or where a canary comes."""

    def __init__(self, flights: Flights, module: str, taint: Taint, measures: Measures) -> None:
        self.flights, self.runtime, self.module, self.taint = flights, flights.runtime, module, taint
        self.measures = measures
        self._clean: dict[str, Reference] = {}
        self._canaries: dict[str, list[tuple[str, Any]]] = {}  # modality -> newest request and the one before it

    def see(self, items: list[Any], mask: Any) -> list[Any]:
        """What is merged instead. Lets the error of a fault's ``Raise`` out, and no other of ours."""
        for flight, rows in self._found(items, mask):
            clean = rows.tensor
            touched = [lease for lease in self._leases(flight) if self._strike(lease, flight, rows, items)]
            self._keep(flight, rows, clean, armed=bool(touched))
        return items

    def _leases(self, flight: Flight) -> list[Armed]:
        """Those that have chosen it."""
        if not self.runtime.armed():
            return []
        try:
            leases = filter(self.flights.acts, self.runtime.leases(Seam.EMBEDDING))
            return [lease for lease in leases if lease.chosen(self.flights.info(flight))]
        except Exception:  # an exception here would end the engine
            logger.exception("the leases of an embedding could not be told")
            return []

    def _of_interest(self, items: Sequence[Any]) -> bool:
        """Whether anything is armed or still to be learnt: reading the mask waits for the device."""
        if self.flights.lost:
            return False
        if self.flights.under_arms and self.runtime.armed():
            self.runtime.fired(Seam.EMBEDDING)
            return True
        kinds = {getattr(item, "modality", "image") for item in items}
        known = all(kind in self._clean and self._clean[kind].count >= MOST_OUTPUTS for kind in kinds)
        return not known or any(self.runtime.identify(request).canary for request in self.flights.order())

    def _found(self, items: Sequence[Any], mask: Any) -> list[tuple[Flight, Rows]]:
        try:
            if not self._of_interest(items):
                return []
            mask = mask.cpu()  # once, not for every request
            found = rows_by_request(self.flights.order(), self.flights.scheduled, items, mask)
            return [
                (self.flights.book.live[request], rows)
                for request, numbers in found
                for rows in joined(request, numbers, items)
            ]
        except Exception:
            logger.exception("the rows of this step could not be told apart; no lease acts on them")
            return []

    def _strike(self, armed: Armed, flight: Flight, rows: Rows, items: list[Any]) -> bool:
        value = MergedEmbedding(
            request=flight.id,
            module=self.module,
            modality=rows.modality,
            tensor=rows.tensor,
            clean=self._clean.setdefault(rows.modality, Reference()),
            before=self._before(flight, rows.modality),
        )
        site = f"{self.module} {rows.modality}"
        self.flights.strike(armed, value, flight, f"{rows.modality} {flight.computed}", site)
        if value.new is None:
            return False
        self.taint.mark(lease_key(armed), flight)  # before anything derives from it
        replaced(items, rows, value.new)
        rows.tensor = value.new  # what the next lease finds
        return True

    def _before(self, flight: Flight, modality: str) -> Any:
        """The clean rows of the canary before this one; another canary's content goes to canaries alone."""
        if not self.flights.canary(flight):
            return None
        found = self._canaries.get(modality, [])
        return next((tensor for request, tensor in found if request != flight.id), None)

    def _keep(self, flight: Flight, rows: Rows, clean: Any, armed: bool) -> None:
        """Remember a clean output for the reference and, of a canary, for the one after it."""
        try:
            reference = self._clean.setdefault(rows.modality, Reference())
            if reference.count < MOST_OUTPUTS:
                reference.add(clean)
            if not self.flights.canary(flight):
                return
            others = [kept for kept in self._canaries.get(rows.modality, []) if kept[0] != flight.id]
            self._canaries[rows.modality] = [(flight.id, clean), *others[:1]]
            if self.measures.wants("embedding"):
                self.measures.observe_embedding("projector", rows.tensor, modality=rows.modality, clean=not armed)
        except Exception:
            logger.exception("an embedding could not be measured")
