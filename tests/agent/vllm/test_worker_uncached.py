"""Which requests are kept out of the prefix cache while a lease lives: those that it may hurt, and no others; and which
steps a lease may act in: those that were scheduled under it.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import uncached
from chaos_mm.agent.vllm.uncached import leave_out, may_be_hurt, seen_by
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Seam
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
    runtime: Runtime,
    fault: str,
    selector: str = "canary",
    mode: str = "inject",
    rate: float = 1.0,
    slot: int = 0,
    serial: int = 1,
    **more: Any,
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
    runtime.page.publish(slot, serial, spec, time.monotonic_ns() + 10**11)


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
        ({"fault": "attention_delay", "selector": "live"}, request(USER), False),
        ({"fault": "attention_timeout"}, request(CANARY), False),
        ({"fault": "attention_hang"}, request(CANARY), False),
        ({"fault": "attention_error"}, request(CANARY), False),
    ],
)
def test_whoever_a_lease_may_hurt(runtime: Runtime, armed: dict[str, Any], asked: Any, hurt: bool) -> None:
    arm(runtime, **armed)
    assert may_be_hurt(runtime, asked) is hurt
    runtime.page.withdraw(0)
    assert may_be_hurt(runtime, asked) is False


def test_what_may_be_shared_is_the_faults_own_word(runtime: Runtime) -> None:
    arm(runtime, "kv_cache_noise")
    (armed,) = runtime.leases(Seam.KV)
    assert may_be_hurt(runtime, request(CANARY))
    armed.fault = replace(armed.fault, changes_content=False)
    assert not may_be_hurt(runtime, request(CANARY))


@dataclass
class Step:
    """Stands for vLLM's SchedulerOutput, a dataclass that is pickled on its way to the workers."""

    requests: list[str]


class Scheduler:
    """One whose blocks are cached in the middle of ``schedule``, as vLLM's are."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uncached, "_runtimes", [runtime])
        self.cached: list[str] = []
        self.meanwhile: list[Callable[[], None]] = []
        self._cache = uncached._door(lambda coordinator, request, tokens: self.cached.append(request.request_id))
        self.schedule = uncached._stamped(self._schedule)

    def _schedule(self, *requests: Any, throttle: bool = False) -> Step:
        for request in requests:
            self._cache(None, request, 128)
            while self.meanwhile:
                self.meanwhile.pop()()
        return Step([request.request_id for request in requests])


@pytest.fixture
def scheduler(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    return Scheduler(runtime, monkeypatch)


def test_a_step_says_which_leases_it_was_scheduled_under(runtime: Runtime, scheduler: Scheduler) -> None:
    before = scheduler.schedule(request(CANARY))
    assert seen_by(before) == -1 and vars(before) == {"requests": [CANARY]}, "disarmed nothing is added to it"
    arm(runtime, "kv_cache_noise")
    step = scheduler.schedule(request(CANARY), request(USER), throttle=True)
    (armed,) = runtime.leases(Seam.KV)
    assert seen_by(step) == armed.generation == runtime.page.generation
    assert seen_by(pickle.loads(pickle.dumps(step, pickle.HIGHEST_PROTOCOL))) == armed.generation
    runtime.page.withdraw(0)
    assert seen_by(scheduler.schedule(request(CANARY))) == -1


def test_a_step_under_a_probe_says_so_before_there_ever_was_a_lease(runtime: Runtime, scheduler: Scheduler) -> None:
    runtime.page.probe(time.monotonic_ns() + 10**10)
    assert seen_by(scheduler.schedule(request(CANARY))) == runtime.page.generation == 0
    assert scheduler.cached == [CANARY]


@pytest.mark.parametrize("before", [False, True])
def test_whoever_is_cached_in_a_step_is_hurt_in_none_that_does_not_know_the_lease(
    runtime: Runtime, scheduler: Scheduler, before: bool
) -> None:
    if before:
        arm(runtime, "attention_delay", slot=1, serial=2)
    first = request(CANARY)
    scheduler.meanwhile.append(lambda: arm(runtime, "kv_cache_noise"))  # after its blocks were cached
    step = scheduler.schedule(first, request(USER))
    (armed,) = runtime.leases(Seam.KV)
    assert scheduler.cached == [CANARY, USER] and seen_by(step) < armed.generation
    step = scheduler.schedule(first)
    assert scheduler.cached == [CANARY, USER], "from now on nothing of it is shared"
    assert seen_by(step) >= armed.generation


def test_a_board_that_cannot_be_read_hurts_nobody_and_ends_no_engine(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise ValueError("released")

    monkeypatch.setattr(uncached, "_runtimes", [SimpleNamespace(armed=broken)])
    step = scheduler.schedule(request(USER))
    assert seen_by(step) == -1 and scheduler.cached == [], "and what may be hurt is not shared"
    assert "nobody is hurt in this step" in caplog.text


def test_a_request_is_left_out_for_good(runtime: Runtime, scheduler: Scheduler) -> None:
    one = request(USER)
    leave_out(one)
    scheduler.schedule(one)
    arm(runtime, "kv_cache_noise")
    scheduler.schedule(two := request(CANARY))
    runtime.page.withdraw(0)
    scheduler.schedule(one, two)
    assert scheduler.cached == []
