"""Faults on attention calls of a worker's decoder layers."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.layout import Column
from chaos_mm.agent.vllm.attention import Call, Layer
from chaos_mm.agent.vllm.book import Flight
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.taint import Taint, lease_key
from chaos_mm.core.fault import Seam

__all__ = ["AttentionSeam"]

logger = logging.getLogger("chaos_mm.agent")


class AttentionSeam:
    """``around`` stands round every call while something is armed."""

    def __init__(self, flights: Flights, layers: Mapping[str, Layer], taint: Taint) -> None:
        self.flights, self.runtime, self.layers, self.taint = flights, flights.runtime, layers, taint
        self._victims: dict[int, list[Flight]] = {}

    def step(self) -> None:
        """A new step begins: who is chosen is asked again."""
        self._victims.clear()

    def around(
        self, real: Callable[..., Any], impl: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call, with what the live leases do to it. The error of a fault's ``Raise`` leaves, no other of ours."""
        place = self.layers.get(getattr(layer, "layer_name", ""))
        if place is None or _argument(args, kwargs, 4, "attn_metadata") is None:  # no decoder layer, or a warm-up
            return real(impl, layer, *args, **kwargs)
        calls = self._before(place)
        made = real(impl, layer, *args, **kwargs)
        for armed, flight, call in calls:
            self._after(armed, flight, call, _argument(args, kwargs, 5, "output"))
        return made

    def _before(self, place: Layer) -> list[tuple[Armed, Flight, Call]]:
        """Strike for each selected request by itself: what is drawn for it depends on nobody else in the batch."""
        began, calls = time.monotonic(), []
        for armed, flight in self._due():
            call = self._call(armed, place, flight, began)
            self.flights.strike(armed, call, flight, "attention", f"layer {place.index} {place.backend}")
            calls.append((armed, flight, call))
        return calls

    def _due(self) -> list[tuple[Armed, Flight]]:
        if not self.flights.under_arms:
            return []
        try:
            self.runtime.fired(Seam.ATTENTION)
            return [(a, flight) for a in self.runtime.leases(Seam.ATTENTION) for flight in self._chosen(a)]
        except Exception:  # an exception here would end the engine
            logger.exception("the leases of an attention call could not be told")
            return []

    def _call(self, armed: Armed, place: Layer, flight: Flight, began: float) -> Call:
        return Call(
            layer=place.index,
            layers=len(self.layers),
            heads=place.heads,
            head_dim=place.head_dim,
            output_index=flight.output_index,
            backend=place.backend,
            requests=(flight.id,),
            state=armed.state,
            alive=lambda: armed.live,
            began=began,
        )

    def _chosen(self, armed: Armed) -> list[Flight]:
        """Asked once a step; a failure of ours leaves the engine alone."""
        if armed.serial not in self._victims:
            self._victims[armed.serial] = []
            try:
                self._victims[armed.serial] = self.flights.chosen(armed)
            except Exception:
                self._failed(armed)
        return self._victims[armed.serial]

    def _after(self, armed: Armed, flight: Flight, call: Call, output: Any) -> None:
        if not call.edits:
            return
        try:
            call.finish(output, self.flights.spans())
            self.taint.mark(lease_key(armed), flight)
        except Exception:  # the fault's own change may raise anything
            self._failed(armed)

    def _failed(self, armed: Armed) -> None:
        armed.book(Column.ERRORED)
        logger.exception("lease %s: an attention call could not be changed", armed.name)


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int, name: str) -> Any:
    """One of (query, key, value, kv_cache, attn_metadata, output), however it was passed."""
    return kwargs[name] if name in kwargs else args[index] if len(args) > index else None
