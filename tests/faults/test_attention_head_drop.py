"""attention_head_drop on the output of torch's own attention."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.rng import Rng
from chaos_mm.faults.attention_head_drop import attention_head_drop
from tests.contract.engine_samples import SampleAttentionCall

CLEAN = SampleAttentionCall(heads=8).launch()


def _rng(request: str = "r-1") -> Rng:
    return Rng.derive(3, request, "", "attention_head_drop")


def _output(request: str = "r-1", **params: Any) -> torch.Tensor:
    call = SampleAttentionCall(heads=8, requests=(request,))
    attention_head_drop(call, _rng(request), **params)
    return call.launch()


def _changed(output: torch.Tensor) -> set[int]:
    return set((output != CLEAN).any(dim=2).all(dim=0).nonzero().view(-1).tolist())


def test_zero_silences_whole_heads_and_leaves_the_others_bit_for_bit():
    output = _output(heads="1,3-4", share=1.0)
    assert not output[:, [1, 3, 4]].any()
    assert torch.equal(output[:, [0, 2, 5, 6, 7]], CLEAN[:, [0, 2, 5, 6, 7]])


@pytest.mark.parametrize("factor", [0.0, 0.25, 4.0, -1.0])
def test_scale_multiplies(factor: float):
    output = _output(heads="2,7", share=1.0, how="scale", factor=factor)
    assert torch.equal(output[:, [2, 7]], CLEAN[:, [2, 7]] * factor)
    assert torch.equal(output[:, [0, 1, 3, 4, 5, 6]], CLEAN[:, [0, 1, 3, 4, 5, 6]])


@pytest.mark.parametrize("heads", ["0,5", "all", "1-3"])
def test_permute_moves_every_struck_head_s_output_to_another_of_them(heads: str):
    output = _output(heads=heads, share=1.0, how="permute")
    members = {"0,5": [0, 5], "all": list(range(8)), "1-3": [1, 2, 3]}[heads]
    source = {h: [k for k in range(8) if torch.equal(output[:, h], CLEAN[:, k])] for h in range(8)}
    assert all(source[head] == [head] for head in range(8) if head not in members)
    assert sorted(k for head in members for k in source[head]) == members
    assert all(source[head] != [head] for head in members)


def test_a_single_head_has_nobody_to_exchange_with():
    call = SampleAttentionCall(heads=8)
    assert attention_head_drop(call, _rng(), heads="3", how="permute") is NOT_NOW
    assert call.change is None


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.25, 2), (0.5, 4), (0.75, 6), (1.0, 8)])
def test_share_of_the_heads_at_least_one_and_counted(share: float, count: int):
    call = SampleAttentionCall(heads=8)
    made = attention_head_drop(call, _rng(), share=share)
    assert made.achieved == {"struck_heads": count, "struck_share": count / 8}
    assert len(_changed(call.launch())) == count


def test_a_larger_share_strikes_the_same_heads_and_more():
    struck = [_changed(_output(share=share)) for share in (0.125, 0.25, 0.5, 0.75, 1.0)]
    assert all(low < high for low, high in zip(struck, struck[1:], strict=False))


def test_over_many_requests_every_head_is_drawn_alike():
    counts = Counter(head for n in range(800) for head in _changed(_output(f"r-{n}", share=0.25)))
    assert set(counts) == set(range(8))
    assert all(abs(counts[head] - 200) < 5 * math.sqrt(800 * 0.25 * 0.75) for head in range(8))


def test_a_request_loses_the_same_heads_at_every_step_even_where_its_draws_differ_by_step():
    call, struck = SampleAttentionCall(heads=8), []
    for step in range(6):
        call.change, call.output_index = None, step
        rng = Rng.derive(3, "r-1", f"step {step}", "attention_head_drop")
        attention_head_drop(call, rng, share=0.5)
        struck.append(_changed(call.launch()))
    assert all(each == struck[0] for each in struck)


def test_layers_draw_their_heads_by_themselves_and_only_selected_ones_are_struck():
    struck = []
    for layer in range(6):
        call = SampleAttentionCall(heads=8, layer=layer, layers=6)
        made = attention_head_drop(call, _rng(), share=0.5, layers="1-5")
        struck.append(frozenset(_changed(call.launch())))
        assert (made is NOT_NOW) == (layer == 0)
    assert struck[0] == frozenset() and len(set(struck[1:])) > 2


def test_it_begins_at_the_token_named():
    assert attention_head_drop(SampleAttentionCall(output_index=4), _rng(), after_tokens=5) is NOT_NOW
    assert attention_head_drop(SampleAttentionCall(output_index=5), _rng(), after_tokens=5) is not NOT_NOW


def test_a_head_or_layer_that_is_not_there_is_refused():
    for place in ({"heads": "8"}, {"layers": "3"}):
        with pytest.raises(InvalidParams, match=next(iter(place))):
            attention_head_drop(SampleAttentionCall(heads=8), _rng(), **place)
