"""attention_delay: how long, how often, by which law, and never the answer."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.attention_delay import attention_delay
from tests.contract.engine_samples import SampleAttentionCall


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "", "attention_delay")


def _delays(steps: int, layers: int = 4, **params: Any) -> Any:
    """Delay of every call of a generation, in order."""
    made = [
        attention_delay(SampleAttentionCall(layer=layer, layers=layers, output_index=step), _rng(), **params)
        for step in range(steps)
        for layer in range(layers)
    ]
    return np.array([each.achieved["delay_seconds"] for each in made])


def test_constant_is_the_same_at_every_call_and_adds_up_over_the_layers():
    assert np.array_equal(_delays(6, seconds=0.02), np.full(24, 0.02))


def test_uniform_is_uniform_around_the_average():
    drawn = _delays(500, seconds=0.1, distribution="uniform", jitter=0.25)
    assert stats.kstest(drawn, stats.uniform(0.075, 0.05).cdf).pvalue > 1e-3
    assert np.array_equal(_delays(5, seconds=0.1, distribution="uniform", jitter=0.0), np.full(20, 0.1))


def test_exponential_is_exponential_and_cut_at_ten_times_its_mean(monkeypatch: pytest.MonkeyPatch):
    drawn = _delays(500, seconds=0.1, distribution="exponential")
    assert stats.kstest(drawn, stats.expon(scale=0.1).cdf).pvalue > 1e-3
    monkeypatch.setattr(Rng, "random", lambda self: 1 - 2.0**-53)
    assert attention_delay(SampleAttentionCall(), _rng(), seconds=0.1, distribution="exponential").achieved == {
        "delay_seconds": pytest.approx(1.0)
    }


def test_each_call_has_its_own_draw_whichever_comes_first():
    calls = [(step, layer) for step in range(20) for layer in range(4)]

    def delay(step: int, layer: int) -> float:
        call = SampleAttentionCall(layer=layer, layers=4, output_index=step)
        return attention_delay(call, _rng(), seconds=1.0, distribution="exponential").achieved["delay_seconds"]

    forwards = {call: delay(*call) for call in calls}
    assert {call: delay(*call) for call in reversed(calls)} == forwards
    assert len(set(forwards.values())) == len(calls)


def test_only_the_selected_layers_are_held_up():
    struck = [
        layer
        for layer in range(5)
        if attention_delay(SampleAttentionCall(layer=layer, layers=5), _rng(), layers="0,-1") is not NOT_NOW
    ]
    assert struck == [0, 4]
    with pytest.raises(InvalidParams, match="layers='5' is outside this engine's 0-4"):
        attention_delay(SampleAttentionCall(layers=5), _rng(), layers="5")


def test_the_figure_is_what_was_truly_slept_when_the_lease_ends_first():
    call = SampleAttentionCall(lease_ends=0.3)
    assert attention_delay(call, _rng(), seconds=5.0).achieved == {"delay_seconds": 0.3}


def test_the_answer_is_the_same():
    call = SampleAttentionCall()
    attention_delay(call, _rng(), seconds=0.5)
    assert call.now == 0.5 and torch.equal(call.launch(), SampleAttentionCall().launch())
