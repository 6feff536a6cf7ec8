"""What the API server asks of the engine core: the scheduler's seams proven, caches evicted, facts read.

Questions travel as vLLM's own utility calls and are answered by ``CoreAgent`` in the engine core's loop. Everything
here but ``learn`` is called from threads of the control process and waits for the answer, at most for a deadline.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos_mm.agent.adapter import NotYet
from chaos_mm.agent.vllm import memory
from chaos_mm.agent.vllm.calls import step_seconds, waited
from chaos_mm.agent.vllm.core import CORE_SEAMS
from chaos_mm.control.token import read_token
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Fault, Seam
from chaos_mm.core.lease import Lease

__all__ = ["CoreLink"]

logger = logging.getLogger("chaos_mm.agent")
_ANSWER_SECONDS: Final = 10.0
_FACT_SECONDS: Final = 0.5
_CANARY_SECONDS: Final = 60.0
_CANARY_PROMPT: Final = (5, 6, 7, 8)  # any vocabulary has these tokens
_CANARY_TOKENS: Final = 3


class CoreLink:
    """One per API server. ``client``: vLLM's ``EngineClient``; ``loop``: the event loop that it lives in."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, refused: Mapping[Seam, str]) -> None:
        """``refused``: why a seam is not to be had, by name."""
        self.refused = dict(refused)
        self._client, self._loop = client, loop
        self._later: dict[tuple[str, str], dict[str, float]] = {}
        self._canaries = (f"agent{secrets.token_hex(4)}", itertools.count())

    @classmethod
    async def learn(cls, client: Any) -> "CoreLink":
        """Ask the engine core what it has. Never raises: what is not to be had is refused by name."""
        loop = asyncio.get_running_loop()
        made = cls(client, loop, {})
        try:
            facts = await asyncio.wait_for(made._asked("facts"), _ANSWER_SECONDS)
        except Exception as error:  # vLLM's client wraps whatever went wrong in the engine core
            made.refused = dict.fromkeys(CORE_SEAMS, f"the engine core does not answer: {type(error).__name__}")
        else:
            made.refused = {Seam(name): why for name, why in facts["refused"].items()}
            if facts["inert"]:
                made.refused = dict.fromkeys(CORE_SEAMS, facts["inert"])
        return made

    @property
    def seams(self) -> frozenset[Seam]:
        """Those of the scheduler that this engine has."""
        return CORE_SEAMS - set(self.refused)

    def refusal(self, fault: Fault) -> str:
        """Why the engine core cannot run the fault; empty when it can, or when its seam lies elsewhere."""
        return self.refused.get(fault.seam, "") if fault.seam in CORE_SEAMS else ""

    def evict(self, blocks: Sequence[int]) -> dict[str, int]:
        """Take blocks out of the prefix cache; how many ``evicted_blocks`` were in it.

        Raises ChaosMMError where one is still in it, as read back afterwards.
        """
        found: dict[str, int] = self.ask("evict", list(blocks))
        if left := found.pop("cached_left"):
            raise ChaosMMError(f"{left} of {len(blocks)} blocks are still in the prefix cache after their eviction")
        return found

    def flush(self) -> dict[str, int]:
        """Forget every cached prefix. Raises NotYet while requests run: vLLM then resets nothing and says so."""
        found: dict[str, int] = self.ask("flush")
        if not found["flushed"]:
            raise NotYet("the prefix cache cannot be reset while requests hold blocks of it")
        return found

    def after_release(self, lease: Lease) -> Mapping[str, float]:
        """For a lease of the scheduler's seams: make sure that nothing is found under a cut key any more.

        Raises NotYet while requests that the lease struck still run.
        """
        if lease.fault.seam is not Seam.MEDIA_KEY:
            return {}
        found, key = self.ask("flush_media"), (lease.spec.owner, lease.name)
        later = self._later.setdefault(key, {"flushed_entries_later": 0.0, "flushed_blocks_later": 0.0})
        for name in later:
            later[name] += found[name.removesuffix("_later")]
        if found["left_entries"] or found["left_blocks"] or found["in_use"]:
            raise NotYet(
                f"stored under cut media keys: {found['left_entries']} encoder outputs, {found['left_blocks']} blocks; "
                f"{found['in_use']} requests still use them"
            )
        return self._later.pop(key)

    def kv(self) -> dict[str, Any]:
        """``blocks_total``, ``blocks_free``, ``usage_ratio`` now; ``hit_ratio`` of the prefix cache since start.

        While a step takes long, only the last: the engine core answers between two steps.
        """
        found = self._fact(self._asked("facts"))
        return {**(found["kv"] if found else {}), "hit_ratio": _hit_ratio()}

    def memory(self) -> dict[str, Any]:
        """``device``, ``used_bytes`` and so on, of the workers together; empty while a step takes long."""
        answers = self._fact(self._client.collective_rpc("chaos_mm_memory", timeout=step_seconds())) or ()
        return memory.together(answers)

    def prove(self, seam: Seam) -> str:
        """Try the seam, with a canary of our own where it takes a request; empty when it takes hold."""
        tried: dict[str, str] = self.ask("probe")
        if seam.value in tried:
            return tried[seam.value]
        self._wait(self._canary(), _CANARY_SECONDS)
        return "" if seam.value in self.ask("passes") else "a canary went through the engine core without passing it"

    def ask(self, question: str, *arguments: Any) -> Any:
        """The engine core's answer. Raises ChaosMMError when none comes in time, or it reports an error."""
        return self._wait(self._asked(question, *arguments), _ANSWER_SECONDS)

    def _fact(self, work: Any) -> Any:
        """The answer if it comes at once, else None: evidence must not wait for an engine that hangs."""
        try:
            return self._wait(work, _FACT_SECONDS)
        except ChaosMMError as error:
            logger.debug("a fact of the engine is not to be had now: %s", error)
            return None

    def _asked(self, question: str, *arguments: Any) -> Any:
        return self._client.engine_core.call_utility_async("chaos_mm_core", question, list(arguments))

    def _wait(self, work: Any, seconds: float) -> Any:
        try:
            return waited(self._loop, work, seconds, "the engine core")
        except ChaosMMError:
            raise
        except Exception as error:  # vLLM's client wraps whatever went wrong there
            raise ChaosMMError(f"the engine core: {type(error).__name__}: {error}") from None

    async def _canary(self) -> None:
        from vllm import SamplingParams

        run, numbers = self._canaries
        name = canary_id(canary_key(read_token()), run, next(numbers))
        wanted = SamplingParams(max_tokens=_CANARY_TOKENS, ignore_eos=True, temperature=0.0)
        async for _ in self._client.generate({"prompt_token_ids": list(_CANARY_PROMPT)}, wanted, name):
            pass


def _hit_ratio() -> float | None:
    """Prefix cache hits by queries, both in tokens, of this server's metrics; None before the first query."""
    from prometheus_client import REGISTRY

    sums = {"vllm:prefix_cache_queries_total": 0.0, "vllm:prefix_cache_hits_total": 0.0}
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name in sums:
                sums[sample.name] += sample.value
    queries, hits = sums.values()
    return hits / queries if queries else None
