"""What the control process knows of models of Hugging Face transformers that are served in its own process."""

from collections.abc import Mapping
from typing import Any

from chaos_mm.agent.adapter import Adapter, NotYet
from chaos_mm.agent.transformers.attention import implementation
from chaos_mm.agent.transformers.canary import exercise_decoder, exercise_place
from chaos_mm.agent.transformers.engine import Served, TransformersEngine
from chaos_mm.agent.transformers.memory import memory_facts
from chaos_mm.core.engine import indices
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Effect, Fault, Seam
from chaos_mm.core.lease import Lease

__all__ = ["TransformersAdapter"]
_STRUCK_SEAMS = frozenset((Seam.KV, Seam.ATTENTION, Seam.EMBEDDING))
_UNDO = {
    Seam.KV: "bytes, element by element, where the request's cache still lives; it goes with its request",
    Seam.ATTENTION: "nothing stays: no call is held up or changed any more",
    Seam.EMBEDDING: "nothing stays but kept encoder outputs of struck requests, which are dropped",
    Seam.GRADIENT: "the hooks go; weights that learnt from it keep what they learnt",
    Seam.MEDIA_KEY: "whole keys again; outputs kept under masked ones dropped, and looked up to see it",
    Seam.ENCODER_CACHE: "the budget as before; traffic fills the cache again",
    Seam.ENGINE_MEMORY: "the limit as before",
}


class TransformersAdapter(Adapter):
    """Whatever model this process has announced last is what it speaks of.

    ``one_at_a_time``: the server computes one request at a time, so an exception costs that request alone.
    ``refused``: why nothing can be injected in this server at all.
    """

    name = "transformers"
    batch_wide = frozenset((Seam.ATTENTION,))
    fatal: Mapping[Effect, str] = {}  # an exception ends the batch that it is raised in, and the server goes on

    def __init__(self, engine: TransformersEngine, *, runner: str, one_at_a_time: bool = False) -> None:
        self.engine, self._runner, self.one_at_a_time = engine, runner, one_at_a_time
        self.version = _version()
        self.unproven: dict[str, str] = {}
        self.refused = ""

    @property
    def loads(self) -> int:  # type: ignore[override]
        """Models that were hooked since the start."""
        return self.engine.loads

    @property
    def served(self) -> Served | None:
        """The model announced last."""
        return self.engine.served[-1] if self.engine.served else None

    @property
    def seams(self) -> frozenset[Seam]:  # type: ignore[override]
        """Those of the model, and what the server told of."""
        served, found = self.served, {Seam.ENGINE_MEMORY}
        if self.engine.kept is not None:
            found |= {Seam.ENCODER_CACHE, Seam.MEDIA_KEY}
        if served is None:
            return frozenset(found | {Seam.KV, Seam.ATTENTION, Seam.EMBEDDING, Seam.GRADIENT})
        found |= {Seam.KV, Seam.ATTENTION}
        return frozenset(found | {Seam.EMBEDDING, Seam.GRADIENT} if served.roles.places else found)

    @property
    def facts(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model's class, device, layers, attention implementation and places; ``errors``: of the agent's own."""
        served = self.served
        if served is None:
            return {"runner": self._runner, "model": None, "backend": None, "errors": self.engine.mishaps.count}
        decoder = served.roles.decoder
        return {
            "runner": self._runner,
            "model": served.name,
            "backend": implementation(decoder.attention[0]),
            "device": served.device,
            "layers": len(decoder.attention),
            "places": {place.path: place.role for place in served.roles.places},
            "errors": self.engine.mishaps.count,
        }

    def refusal(self, fault: Fault) -> str:
        """By name: no model, one without a decoder, compiled, a cache or an attention that cannot be met."""
        served = self.served
        if self.refused or self.engine.refused:
            return self.refused or self.engine.refused
        if served is None:
            return "no model has been loaded in this process yet; send a request first"
        if fault.seam is Seam.KV:
            return served.cache_problem
        if fault.seam is Seam.ATTENTION:
            return served.attention_problem
        return _not_training(served) if fault.seam is Seam.GRADIENT else ""

    def check(self, fault: Fault, params: Mapping[str, Any]) -> None:
        """Refuse a place or layers that the model does not have. Raises InvalidParams naming what it has."""
        served = self.served
        if served is None:
            return
        roles = served.roles
        if "layers" in fault.params and fault.seam in (Seam.KV, Seam.ATTENTION):
            indices(params["layers"], len(roles.decoder.attention), "layers")
        if "place" not in fault.params:
            return
        place = str(params["place"])
        if not roles.named(place):
            raise InvalidParams(
                f"{fault.name}: place={place[:60]!r} is not in {served.name}; it has: {', '.join(roles.names())}"
            )

    def selectable(self, fault: Fault) -> bool:
        """Outputs are changed row by row; a wait, an exception or a gradient is the whole batch's.

        A fault that names heads changes outputs; others at attention hold the call up or end it.
        """
        if fault.effect in (Effect.RAISES, Effect.ROWS):
            return self.one_at_a_time
        if fault.seam is Seam.GRADIENT:  # one gradient flows back for all rows, and weights learn from it for everybody
            return False
        return fault.seam is not Seam.ATTENTION or "heads" in fault.params

    def undo_note(self, fault: Fault) -> str:
        """In words."""
        return _UNDO.get(fault.seam, "") if fault.seam else ""

    def prove(self, seam: Seam) -> str:
        """Small zeros through the parts that the seam is at."""
        served = self.served
        if served is None:
            return "no model has been loaded in this process yet; send a request first"
        if seam in (Seam.KV, Seam.ATTENTION):
            exercise_decoder(served.roles)
            return served.cache_problem if seam is Seam.KV else served.attention_problem
        if seam is Seam.EMBEDDING:
            self.unproven = {p.path: why for p in served.roles.places if (why := exercise_place(p))}
            if len(self.unproven) == len(served.roles.places):
                return "; ".join(f"{path}: {why}" for path, why in self.unproven.items())
        return _not_training(served) if seam is Seam.GRADIENT else ""

    def after_release(self, lease: Lease) -> Mapping[str, float]:
        """Wait for the batches that it struck: their caches hold what was derived from the damage, and go with them."""
        if lease.fault.seam not in _STRUCK_SEAMS:
            return {}
        waiting = self.engine.in_flight(lease.name, lease.spec.owner)
        if waiting:
            raise NotYet(f"{waiting} batches that were computed under it are not done yet")
        return {"batches_in_flight": 0.0}

    def memory(self) -> Mapping[str, Any]:
        """Of this process."""
        served = self.served
        return memory_facts("cpu" if served is None else served.device)


def _not_training(served: Served) -> str:
    return "" if served.roles.model.training else f"{served.name} is in evaluation mode: no gradient flows back"


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("transformers")
