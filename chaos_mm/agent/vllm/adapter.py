"""vLLM as the control process knows it: which seams there are, what kills it, and how a clean state is proven."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from chaos_mm.agent.adapter import Adapter, NotYet
from chaos_mm.agent.vllm import gate, proof
from chaos_mm.agent.vllm.calls import step_seconds, waited
from chaos_mm.agent.vllm.embeddings import PLACES
from chaos_mm.agent.vllm.facts import WORKER_SEAMS, fault_refusal
from chaos_mm.agent.who import OWN_PREFIX
from chaos_mm.core.errors import ChaosMMError, InvalidParams
from chaos_mm.core.fault import Effect, Fault, Seam
from chaos_mm.core.lease import Lease

__all__ = ["CoreSide", "VllmAdapter"]

logger = logging.getLogger("chaos_mm.agent")
_RPC_SECONDS = 30.0
_DIES = "restart needed: vLLM 0.32.0 ends its engine on any exception in a step, and every request in flight fails"


class CoreSide(Protocol):
    """The engine core's part, in the control process; called from any thread but the event loop's."""

    @property
    def seams(self) -> frozenset[Seam]:
        """Those of the scheduler that this engine has."""

    def refusal(self, fault: Fault) -> str:
        """Why the engine core cannot run a fault of its seams."""

    def prove(self, seam: Seam) -> str:
        """As ``Adapter.prove``, for its seams."""

    def after_release(self, lease: Lease) -> Mapping[str, float]:
        """As ``Adapter.after_release``, for its seams."""

    def evict(self, blocks: Sequence[int]) -> Mapping[str, float]:
        """Take blocks out of the prefix cache, read back afterwards. Raises ChaosMMError where one is still in it."""


class VllmAdapter(Adapter):
    """Made in the API server. ``core`` is put in by whoever starts the control API there."""

    name = "vllm"
    batch_wide = frozenset({Seam.ATTENTION})
    fatal = {
        Effect.RAISES: _DIES,
        Effect.ROWS: "restart needed: vLLM 0.32.0 ends its engine when an encoder's rows do not match the placeholders",
        Effect.EXITS: "restart needed: the server does not come back without its worker",
    }
    passed = frozenset({Seam.KV, Seam.ATTENTION, Seam.EMBEDDING, Seam.KV_LOAD})

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, answers: Sequence[Mapping[str, Any]]) -> None:
        """``answers``: what the workers said of themselves, ``chaos_mm_facts``; empty where they could not be asked."""
        self.version = gate.installed_version()
        self.core: CoreSide | None = None
        self._client, self._loop = client, loop
        self._inert = _inert(answers)
        first = dict(answers[0]) if answers and not self._inert else {}
        self._refused = {Seam(name): why for name, why in first.pop("refused", {}).items()}
        self.facts = first
        self._evicted: dict[str, float] = {}

    @classmethod
    async def learn(cls, client: Any) -> "VllmAdapter":
        """Ask the workers, which builds their agents; never raises: what cannot be asked is refused by name."""
        answers: Sequence[Mapping[str, Any]] = ()
        if not gate.refusal():
            try:
                answers = await asyncio.wait_for(
                    client.collective_rpc("chaos_mm_facts", timeout=step_seconds()), _RPC_SECONDS
                )
            except Exception as error:  # the server must serve whatever becomes of the agent
                logger.exception("the workers could not be asked")
                answers = ({"inert": f"the workers could not be asked: {type(error).__name__}"},)
        return cls(client, asyncio.get_running_loop(), answers)

    @property
    def seams(self) -> frozenset[Seam]:  # type: ignore[override]
        """Those of the workers that are not refused, and the engine core's."""
        mine = frozenset() if self._inert else (WORKER_SEAMS | {Seam.ENGINE_MEMORY}) - self._refused.keys()
        return mine | (self.core.seams if self.core is not None else frozenset())

    def refusal(self, fault: Fault) -> str:
        """By name: the version, the runner, the mode or the model that forbids it."""
        if why := gate.refusal():
            return why
        seam = fault.seam
        if seam in WORKER_SEAMS or seam in (Seam.GRADIENT, Seam.ENGINE_MEMORY):
            return self._inert or self._refused.get(seam, "") or fault_refusal(fault, self.facts)
        return self.core.refusal(fault) if self.core is not None else ""

    def seam_reason(self, seam: Seam) -> str:
        """Why the seam is not to be had in this server, by name; empty where it is."""
        return (self._inert if seam in WORKER_SEAMS else "") or self._refused.get(seam, "")

    def check(self, fault: Fault, params: Mapping[str, Any]) -> None:
        """What bounds cannot say. Raises InvalidParams on a place that this model does not have at the merge."""
        place = params.get("place") if fault.seam is Seam.EMBEDDING else None
        known = (*PLACES, self.facts.get("module", ""))
        if place is not None and place not in known:
            raise InvalidParams(
                f"{fault.name}: place={str(place)[:60]!r} cannot be reached in vLLM, whose encoder outputs are cached "
                f"and shared; at the merge there is {' or '.join(repr(word) for word in dict.fromkeys(known) if word)}"
            )

    def selectable(self, fault: Fault) -> bool:
        """Delays and errors of attention hit the batch; what changes the output changes the rows of the selected."""
        return _changes_rows(fault) or super().selectable(fault)

    def undo_note(self, fault: Fault) -> str:
        """See ``Adapter.undo_note``."""
        if fault.seam is Seam.KV:
            return "bytes, element by element; then every block derived from them leaves the prefix cache"
        if fault.seam in (Seam.EMBEDDING, Seam.KV_LOAD) or _changes_rows(fault):
            return "every key-value block derived from it leaves the prefix cache"
        return ""

    def prove(self, seam: Seam) -> str:
        """Send a short request of its own through the engine."""
        if seam is Seam.ENGINE_MEMORY:  # its limits and patches are read back by the faults themselves
            return ""
        if seam not in WORKER_SEAMS:
            return self.core.prove(seam) if self.core is not None else "the engine core was not reached"
        tokens = 2 if seam is not Seam.KV_LOAD else 1
        request = f"{OWN_PREFIX}{secrets.token_hex(8)}"
        long = int(self.facts.get("block_size", 0)) + 8 if seam is Seam.KV_LOAD else 8
        why: str = self._wait(
            proof.send(self._client, request, media=seam is Seam.EMBEDDING, length=long, tokens=tokens)
        )
        return why

    def after_release(self, lease: Lease) -> Mapping[str, float]:
        """Evict what derives from the damage, until nobody writes more of it."""
        figures: dict[str, float] = {}
        if lease.fault.seam in WORKER_SEAMS:
            figures.update(self._evict(f"{lease.spec.owner}/{lease.name}"))
        if self.core is not None and lease.fault.seam in self.core.seams:
            figures.update(self.core.after_release(lease))
        return figures

    def undo_now(self) -> None:
        """Ask the workers on a GPU, which then undo what is due; on a CPU their watchers do it in an idle engine."""
        if self.facts.get("device", "cpu") != "cpu":
            self._wait(self._asked("chaos_mm_evidence"))

    def kv(self) -> Mapping[str, Any]:
        """As the engine core knows it."""
        found = getattr(self.core, "kv", None)
        return found() if found is not None else {}

    def memory(self) -> Mapping[str, Any]:
        """As the engine core knows it."""
        found = getattr(self.core, "memory", None)
        return found() if found is not None else {}

    def measures(self) -> Mapping[str, Any]:
        """What the workers measured, for ``GET /agent``; empty where they cannot be asked just now."""
        if not self.facts.get("measures"):
            return {}
        try:
            answers = self._wait(self._asked("chaos_mm_evidence"), seconds=2.5)
        except Exception as error:  # a worker in a long step, or one that is gone
            logger.debug("the workers could not be asked for measures: %s", error)
            return {}
        return answers[0].get("measures", {}) if answers else {}

    def _evict(self, key: str) -> Mapping[str, float]:
        answers = self._wait(self._asked("chaos_mm_evidence"))
        found = [answer["taint"][key] for answer in answers if key in answer.get("taint", {})]
        blocks = sorted({block for each in found for block in each["blocks"]})
        if not found:
            return {}
        if self.core is None:
            raise ChaosMMError(f"{len(blocks)} derived blocks cannot be evicted: the engine core was not reached")
        done = self.core.evict(blocks) if blocks else {}
        self._evicted[key] = self._evicted.get(key, 0.0) + float(done.get("evicted_blocks", 0))
        carriers = sum(len(each["carriers"]) for each in found)
        if carriers:
            raise NotYet(f"{carriers} hurt requests still run and write blocks derived from the damage")
        self._wait(self._asked("chaos_mm_forget", key))
        return {"derived_blocks": float(len(blocks)), "evicted_blocks": self._evicted.pop(key)}

    def _asked(self, question: str, *arguments: Any) -> Coroutine[Any, Any, Any]:
        """Every worker's answer, given between two steps."""
        asked: Coroutine[Any, Any, Any] = self._client.collective_rpc(question, timeout=step_seconds(), args=arguments)
        return asked

    def _wait(self, work: Coroutine[Any, Any, Any], seconds: float = _RPC_SECONDS + 5.0) -> Any:
        """Run it in the server's loop; the caller is another thread. Raises ChaosMMError when it takes too long."""
        return waited(self._loop, work, seconds, "vLLM")


def _changes_rows(fault: Fault) -> bool:
    """Whether it edits what attention gives out, which is told apart by request, and not the time that it takes."""
    return fault.seam is Seam.ATTENTION and fault.changes_content


def _inert(answers: Sequence[Mapping[str, Any]]) -> str:
    """Why the workers do nothing; empty when all of them work."""
    if not answers:
        return gate.refusal() or "the workers were not asked"
    return next((str(answer["inert"]) for answer in answers if answer.get("inert")), "")
