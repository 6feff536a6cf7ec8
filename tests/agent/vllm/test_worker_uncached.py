"""Which requests are kept out of the prefix cache while a lease lives: those that it may hurt, and no others."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm.uncached import may_be_hurt
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.faults import catalogue

TOKEN = "t" * 43
CANARY = f"chatcmpl-{canary_id(canary_key(TOKEN), 'r1', 3)}-0123abcd"
USER = "chatcmpl-somebody-0123abcd"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    board = Board.create(tmp_path / "board", new_nonce())
    made = Runtime(board, token=TOKEN, process="engine_core")
    yield made
    made.close()
    board.close()


def arm(
    runtime: Runtime, fault: str, selector: str = "canary", mode: str = "inject", rate: float = 1.0, **more: Any
) -> None:
    spec = {
        "name": "lease",
        "fault": fault,
        "params": catalogue()[fault].bind(more),
        "seed": 1,
        "mode": mode,
        "owner": "r1",
        "radius": {"rate": rate, "selector": selector, "limit": 0},
    }
    runtime.page.publish(0, 1, spec, time.monotonic_ns() + 10**11)


def request(name: str, hit: int = 0, modalities: tuple[str, ...] = ()) -> Any:
    features = [SimpleNamespace(modality=modality) for modality in modalities]
    return SimpleNamespace(request_id=name, mm_features=features, prefill_stats=SimpleNamespace(num_cached_tokens=hit))


@pytest.mark.parametrize(
    ("armed", "asked", "hurt"),
    [
        ({"fault": "kv_cache_noise"}, request(CANARY), True),
        ({"fault": "kv_cache_noise"}, request(USER), False),
        ({"fault": "kv_cache_noise"}, request(CANARY[:-12] + "0" * 3 + CANARY[-9:]), False),
        ({"fault": "attention_head_drop", "selector": "live"}, request(USER), True),
        ({"fault": "kv_cache_noise", "mode": "observe"}, request(CANARY), False),
        ({"fault": "kv_cache_noise", "sigma": 0.0}, request(CANARY), False),
        ({"fault": "kv_cache_noise", "rate": 0.0}, request(CANARY), False),
        ({"fault": "kv_cache_noise", "after_tokens": 0}, request(CANARY), False),
        ({"fault": "kv_cache_noise", "after_tokens": 0}, request(CANARY, hit=128), True),
        ({"fault": "embedding_shift", "selector": "canary,modality:image"}, request(CANARY), False),
        ({"fault": "embedding_shift", "selector": "canary,modality:image"}, request(CANARY, 0, ("image",)), True),
        ({"fault": "forced_preemption"}, request(CANARY), False),
    ],
)
def test_whoever_a_lease_may_hurt(runtime: Runtime, armed: dict[str, Any], asked: Any, hurt: bool) -> None:
    arm(runtime, **armed)
    assert may_be_hurt(runtime, asked) is hurt
    runtime.page.withdraw(0)
    assert may_be_hurt(runtime, asked) is False
