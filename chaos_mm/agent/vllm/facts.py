"""What a worker says of itself, and which seams that leaves: everything not seen working is refused by name."""

import json
from collections.abc import Mapping
from typing import Any

from chaos_mm.agent.vllm import gate
from chaos_mm.agent.vllm.attention import Layer
from chaos_mm.agent.vllm.calls import step_seconds
from chaos_mm.agent.vllm.kv import HALVES
from chaos_mm.core.fault import Fault, Seam

__all__ = ["CONNECTOR_MODULE", "WORKER_SEAMS", "fault_refusal", "read_facts", "seam_refusals"]

WORKER_SEAMS = frozenset({Seam.KV, Seam.KV_LOAD, Seam.ATTENTION, Seam.EMBEDDING})
CONNECTOR_MODULE = "chaos_mm.agent.vllm.connector"
_CONNECTOR = {
    "kv_connector": "ChaosConnector",
    "kv_connector_module_path": CONNECTOR_MODULE,
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
_CONNECTOR_HINT = f"--kv-transfer-config '{json.dumps(_CONNECTOR)}'"


def read_facts(worker: Any, layers: Mapping[str, Layer]) -> dict[str, Any]:
    """Plain JSON about the engine as this worker runs it: versions, sizes, modes."""
    config, runner = worker.vllm_config, worker.model_runner
    parallel, cache = config.parallel_config, runner.kv_cache_config
    layer = next(iter(layers.values()), None)
    tensors = [t for t in runner.kv_caches if hasattr(t, "dtype")]
    return {
        "version": gate.installed_version(),
        "runner": "V2" if getattr(worker, "use_v2_model_runner", False) else "V1",
        "device": str(worker.device.type) if getattr(worker, "device", None) is not None else "",
        "backend": layer.backend if layer else "",
        "layers": len(layers),
        "heads": layer.heads if layer else 0,
        "head_dim": layer.head_dim if layer else 0,
        "kv_heads": int(tensors[0].shape[1]) if tensors and tensors[0].dim() == 4 else 0,
        "kv_dtype": _dtype(tensors, str(config.cache_config.cache_dtype)),
        "block_size": int(config.cache_config.block_size),
        "blocks": int(cache.num_blocks),
        "groups": len(cache.kv_cache_groups),
        "parallel": {
            "tensor": parallel.tensor_parallel_size,
            "pipeline": parallel.pipeline_parallel_size,
            "data": parallel.data_parallel_size,
        },
        "speculative": config.speculative_config is not None,
        "full_graphs": _full_graphs(config, runner),
        "compiled": str(getattr(config.compilation_config.mode, "name", config.compilation_config.mode)),
        "step_timeout_seconds": step_seconds(),
        "connector": _connector(config),
        "module": _merge_module(runner),
    }


def seam_refusals(facts: Mapping[str, Any]) -> dict[Seam, str]:
    """Why a seam is not to be had in this worker, by name; a seam that is not in it is."""
    refused: dict[Seam, str] = {Seam.GRADIENT: "vLLM does not train: no gradient flows"}
    whole = _whole(facts)
    if whole:
        return refused | dict.fromkeys(WORKER_SEAMS, whole)
    if facts["backend"] not in HALVES:
        refused[Seam.KV] = f"how {facts['backend'] or 'this backend'} lays out keys and values was not seen yet"
    if facts["full_graphs"]:
        refused[Seam.ATTENTION] = "full CUDA graphs replay attention without calling it; start with --enforce-eager"
    if not facts["module"]:
        refused[Seam.EMBEDDING] = "the model takes no media: nothing is merged"
    if not facts["connector"]:
        refused[Seam.KV_LOAD] = f"no connector of chaos_mm; start with {_CONNECTOR_HINT}"
    return refused


def fault_refusal(fault: Fault, facts: Mapping[str, Any]) -> str:
    """Why this one fault is not to be had although its seam is."""
    place = fault.params.get("place")
    if fault.seam is Seam.EMBEDDING and place is not None and place.default == "qformer":
        return "vLLM caches and shares what leaves the Q-Former; per request it can be reached at the merge alone"
    return ""


def _whole(facts: Mapping[str, Any]) -> str:
    """What makes every seam of the worker unsafe."""
    if facts["runner"] != "V1":
        return "model runner V2 was not seen working; start with VLLM_USE_V2_MODEL_RUNNER=0"
    for kind, size in facts["parallel"].items():
        if size > 1:
            return f"{kind} parallel size {size} was not seen working; one worker is"
    if facts["groups"] != 1:
        return f"{facts['groups']} key-value cache groups (hybrid models): block ids repeat between groups"
    if facts["speculative"]:
        return "speculative decoding was not seen working"
    return ""


def _full_graphs(config: Any, runner: Any) -> bool:
    mode = config.compilation_config.cudagraph_mode
    used = getattr(runner, "use_cuda_graph", not config.model_config.enforce_eager)
    return bool(used) and mode is not None and bool(mode.has_full_cudagraphs())


def _connector(config: Any) -> bool:
    transfer = config.kv_transfer_config
    return transfer is not None and getattr(transfer, "kv_connector_module_path", None) == CONNECTOR_MODULE


def _merge_module(runner: Any) -> str:
    """Name of the module whose output is merged; empty where the model takes no media."""
    if not getattr(runner, "supports_mm_inputs", False):
        return ""
    try:
        found = runner.get_model().get_mm_mapping().connector
    except (AttributeError, RuntimeError):  # a model without such a mapping raises the latter
        return "merge"
    return (found[-1] if isinstance(found, list) else found or "merge").rstrip(".")


def _dtype(tensors: list[Any], word: str) -> str:
    if tensors and tensors[0].element_size() == 1:
        return "float8_e5m2" if word == "fp8_e5m2" else "float8_e4m3fn"
    return str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
