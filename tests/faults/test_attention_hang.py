"""attention_hang: until the lease ends, or its own limit, once a request."""

import threading
import time
from dataclasses import dataclass, field

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.attention_hang import attention_hang
from tests.contract.engine_samples import SampleAttentionCall


def _rng() -> Rng:
    return Rng.derive(3, "r-1", "", "attention_hang")


@pytest.mark.parametrize(("ends", "longest", "held"), [(7.3, 600.0, 7.3), (0.1, 600.0, 0.1), (float("inf"), 2.6, 2.6)])
def test_it_hangs_until_the_lease_ends_or_the_limit(ends: float, longest: float, held: float):
    call = SampleAttentionCall(layer=0, lease_ends=ends)
    made = attention_hang(call, _rng(), longest_seconds=longest)
    assert made.achieved == {"held_seconds": pytest.approx(held)}
    assert torch.equal(call.launch(), SampleAttentionCall().launch()), "it goes on where it stood"


@dataclass
class _RealCall(SampleAttentionCall):
    """Sleeps on the real clock, as an adapter does, until released."""

    released: threading.Event = field(default_factory=threading.Event)

    def sleep(self, seconds: float) -> float:
        start = time.monotonic()
        self.released.wait(seconds)
        return time.monotonic() - start


def test_a_release_from_another_thread_lets_it_go_within_a_moment():
    call = _RealCall(layer=0)
    timer = threading.Timer(0.6, call.released.set)
    timer.start()
    start = time.monotonic()
    made = attention_hang(call, _rng())
    timer.join()
    assert 0.55 < made.achieved["held_seconds"] < time.monotonic() - start + 0.01 < 2.0


def test_a_request_hangs_once():
    call = SampleAttentionCall(layer=0)
    assert attention_hang(call, _rng(), longest_seconds=1.0) is not NOT_NOW
    assert attention_hang(call, _rng(), longest_seconds=1.0) is NOT_NOW
    call.requests = ("r-2",)
    assert attention_hang(call, _rng(), longest_seconds=1.0) is not NOT_NOW


def test_it_waits_for_its_token_and_its_layer():
    assert attention_hang(SampleAttentionCall(layer=1), _rng()) is NOT_NOW
    assert attention_hang(SampleAttentionCall(layer=0, output_index=4), _rng(), after_tokens=5) is NOT_NOW
    call = SampleAttentionCall(layer=0, output_index=5, lease_ends=0.3)
    assert attention_hang(call, _rng(), after_tokens=5).achieved["held_seconds"] == pytest.approx(0.3)
