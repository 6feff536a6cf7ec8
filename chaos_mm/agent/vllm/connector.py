"""A key-value connector whose loads fail on purpose: the one failure that vLLM 0.32.0 confines to one request.

Opt-in at start, because it runs in every step:

    --kv-transfer-config '{"kv_connector": "ChaosConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "chaos_mm.agent.vllm.connector", "kv_load_failure_policy": "recompute"}'

While a lease is live it claims the full prompt blocks of a chosen request as stored elsewhere, loads nothing, and says
so or keeps silent. Without a lease it claims nothing. With the policy ``recompute`` a declared failure is recomputed,
with ``fail`` the request ends with an error; a silent one is answered from blocks that were never filled.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.vllm import process
from chaos_mm.agent.vllm.taint import lease_key
from chaos_mm.agent.vllm.uncached import leave_out
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.fault import Seam

__all__ = ["ChaosConnector", "FailedLoads", "Load"]

logger = logging.getLogger("chaos_mm.agent")
_SLICE_SECONDS = 0.02


@dataclass
class Load:
    """``KvLoad`` of one request; what the fault decided is shipped to the worker."""

    request: str
    tokens: int
    lease: str
    declared: bool = True
    delay_seconds: float = 0.0
    blocks: list[int] = field(default_factory=list)
    failed: bool = False

    def fail(self, *, declared: bool, delay_seconds: float = 0.0) -> None:
        """See ``KvLoad.fail``."""
        self.failed, self.declared, self.delay_seconds = True, declared, delay_seconds


@dataclass
class FailedLoads(KVConnectorMetadata):  # type: ignore[misc]
    """What the worker shall not load in the coming step."""

    loads: list[Load] = field(default_factory=list)


class ChaosConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Scheduler side: claims. Worker side: loads nothing. Neither lets an exception of ours into the engine."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        """As vLLM makes it, once in the engine core and once in each worker."""
        super().__init__(vllm_config, role, kv_cache_config)
        self._size = int(vllm_config.cache_config.block_size)
        scheduler = role == KVConnectorRole.SCHEDULER
        self._runtime = process.runtime("engine_core" if scheduler else "Worker")
        self._claims: dict[str, Load] = {}
        self._asked: set[str] = set()
        self._ready: list[Load] = []
        self._invalid: set[int] = set()
        if scheduler and not self._runtime.inert:
            self._runtime.declare(Seam.KV_LOAD)

    # -- scheduler side

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens it pretends to hold beyond those that are computed."""
        if not self._runtime.armed():
            return 0, False
        try:
            load = self._claim(request, num_computed_tokens)
        except Exception:  # an exception here would end the engine
            logger.exception("a key-value load could not be claimed")
            return 0, False
        return (load.tokens if load else 0), False

    def _claim(self, request: Any, computed: int) -> Load | None:
        self._runtime.fired(Seam.KV_LOAD)
        tokens = (request.num_prompt_tokens - 1) // self._size * self._size - computed
        if tokens <= 0 or request.request_id in self._asked:
            return None
        waiting = self._claims.pop(request.request_id, None)
        if waiting is not None and _live(self._runtime.leases(Seam.KV_LOAD), waiting):
            waiting.tokens = tokens  # asked again before there was room for it
            self._claims[request.request_id] = waiting
            return waiting
        info = RequestInfo(request.request_id, "", modalities=_modalities(request))
        for armed in self._runtime.leases(Seam.KV_LOAD):
            if armed.matches(info) and armed.chosen(info):
                load = Load(request.request_id, tokens, lease_key(armed))
                armed.strike(load, request.request_id, "load", "kv_load")
                if load.failed:
                    leave_out(request)  # whatever becomes of the lease before its blocks are given out
                    self._claims[request.request_id] = load
                    return load
        return None

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The blocks that it pretended to fill."""
        load = self._claims.pop(request.request_id, None)
        if load is None or not num_external_tokens:
            return
        self._asked.add(request.request_id)
        count = num_external_tokens // self._size
        first = (request.num_prompt_tokens - 1) // self._size - count
        load.blocks = list(blocks.get_block_ids()[0][first : first + count])
        self._ready.append(load)

    def build_connector_meta(self, scheduler_output: Any) -> FailedLoads:
        """What goes to the workers with this step."""
        made, self._ready = FailedLoads(self._ready), []
        return made

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Nothing is kept of a request that has ended."""
        self._asked.discard(request.request_id)
        self._claims.pop(request.request_id, None)
        return False, None

    # -- worker side

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Wait as long as the fault asked for, and load nothing."""
        metadata = self._get_connector_metadata()
        for load in metadata.loads if isinstance(metadata, FailedLoads) else ():
            try:
                self._wait(load)
                silent = not load.declared and _tainted(load)
            except Exception:  # an exception here would end the engine
                logger.exception("a failed key-value load is declared: its damage could not be followed")
                silent = False
            if not silent:
                self._invalid.update(load.blocks)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks whose load failed and was declared, since the last call."""
        found, self._invalid = self._invalid, set()
        return found

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is under way."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is stored."""

    def wait_for_save(self) -> None:
        """Nothing is stored."""

    def _wait(self, load: Load) -> None:
        until = time.monotonic() + load.delay_seconds
        while (left := until - time.monotonic()) > 0 and _live(self._runtime.leases(Seam.KV_LOAD), load):
            time.sleep(min(left, _SLICE_SECONDS))


def _live(leases: Sequence[Armed], load: Load) -> bool:
    return any(lease_key(armed) == load.lease for armed in leases)


def _tainted(load: Load) -> bool:
    """Blocks that nobody filled, and all that is computed from them, must leave the prefix cache on release.

    False where no worker of this process follows the request: such a load must not stay silent.
    """
    known = False
    for agent in process.worker_agents():
        flight = agent.book.live.get(load.request)
        if flight is not None:
            agent.taint.mark(load.lease, flight, load.blocks)
            known = True
    return known


def _modalities(request: Any) -> frozenset[str]:
    return frozenset({"text", *(feature.modality for feature in request.mm_features)})
