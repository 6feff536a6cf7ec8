"""attention_timeout: n deadlines missed in a row, then an exception where the engine survives one."""

from typing import Any

import pytest

from chaos_mm.core.engine import NOT_NOW, Raise
from chaos_mm.core.fault import Effect
from chaos_mm.core.rng import Rng
from chaos_mm.faults.attention_timeout import attention_timeout
from tests.contract.engine_samples import SampleAttentionCall


def _run(steps: int, call: SampleAttentionCall, depth: int = 2, **params: Any) -> list[tuple[int, Any]]:
    """The step of each answer that was none of NOT_NOW, with it; layer after layer, as a decoder calls them."""
    answers = []
    for step in range(steps):
        for layer in range(depth):
            call.output_index, call.layer, call.layers = step, layer, depth
            made = attention_timeout(call, Rng.derive(3, "r-1", "", "x"), **params)
            answers += [] if made is NOT_NOW else [(step, made)]
    return answers


def test_where_an_exception_costs_one_request_the_last_of_n_raises():
    call = SampleAttentionCall(survives_raise=True)
    answers = _run(6, call, times=3)
    assert [step for step, _ in answers] == [0, 1, 2]
    assert [made.achieved for _, made in answers[:2]] == [{"held_seconds": 0.12, "raised": 0.0}] * 2
    raised = answers[2][1]
    assert isinstance(raised, Raise) and isinstance(raised.error, TimeoutError)
    assert "0.12 s, 3 times" in str(raised.error) and raised.achieved == {"held_seconds": 0.12, "raised": 1.0}
    assert call.now == pytest.approx(3 * 0.12)


def test_where_the_engine_does_not_survive_it_nothing_is_ever_raised():
    call = SampleAttentionCall(survives_raise=False)
    answers = _run(8, call, times=3, deadline_seconds=0.5)
    assert [made.achieved for _, made in answers] == [{"held_seconds": 0.5, "raised": 0.0}] * 3
    assert attention_timeout.effect is Effect.NONE


def test_once_is_enough_to_raise_at_the_first():
    assert isinstance(_run(2, SampleAttentionCall(), times=1)[0][1], Raise)


def test_each_request_is_struck_so_often_and_no_more():
    call = SampleAttentionCall(survives_raise=False, requests=("a", "b"))
    assert len(_run(1, call, times=2)) == 1
    call.requests = ("b", "c")  # a has finished, c has joined
    assert len(_run(1, call, times=2)) == 1
    call.requests = ("b",)
    assert _run(4, call, times=2) == []
    call.requests = ("c",)
    assert len(_run(4, call, times=2)) == 1


def test_it_begins_at_the_token_named_and_in_the_layers_named():
    answers = _run(9, SampleAttentionCall(), times=4, after_tokens=5, layers="all")
    assert [step for step, _ in answers] == [5, 5, 6, 6] and isinstance(answers[-1][1], Raise)


def test_a_lease_that_ends_in_the_middle_of_a_wait_raises_nothing():
    answers = _run(1, SampleAttentionCall(lease_ends=0.2), times=1, deadline_seconds=1.0)
    assert answers[0][1].achieved == {"held_seconds": 0.2, "raised": 0.0}


def test_what_is_remembered_of_requests_does_not_grow_without_end():
    call = SampleAttentionCall(survives_raise=False)
    for n in range(5000):
        call.requests = (f"r-{n}",)
        call.layer = 0
        attention_timeout(call, Rng.derive(3, "r", "", "x"), times=1)
    assert len(call.state["struck"]) <= 4096
