"""attention_error: the error, its words, and that it is declared beforehand."""

import pytest
import torch

from chaos_mm.core.engine import NOT_NOW, Raise
from chaos_mm.core.fault import Effect
from chaos_mm.core.rng import Rng
from chaos_mm.faults.attention_error import attention_error
from tests.contract.engine_samples import SampleAttentionCall


def _rng() -> Rng:
    return Rng.derive(3, "r-1", "", "attention_error")


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("timeout", TimeoutError, "timed out"),
        ("illegal_memory_access", RuntimeError, "CUDA error: an illegal memory access was encountered"),
        ("out_of_memory", torch.OutOfMemoryError, "out of memory"),
    ],
)
def test_each_kind_is_the_class_a_real_one_has_and_says_that_it_was_injected(
    kind: str, error: type[Exception], words: str
):
    made = attention_error(SampleAttentionCall(layer=0), _rng(), kind=kind)
    assert isinstance(made, Raise) and type(made.error) is error
    assert words in str(made.error) and "raised by chaos_mm" in str(made.error)
    assert made.achieved == {"raised": 1.0}


def test_it_is_declared_as_one_that_raises_so_that_an_engine_may_call_it_fatal():
    assert attention_error.effect is Effect.RAISES


def test_a_request_is_struck_once_at_its_token_in_its_layer():
    call, struck = SampleAttentionCall(), []
    for step in range(6):
        for layer in range(3):
            call.output_index, call.layer = step, layer
            made = attention_error(call, _rng(), after_tokens=2, layers="1")
            struck += [] if made is NOT_NOW else [(step, layer)]
    assert struck == [(2, 1)]
    assert torch.equal(call.launch(), SampleAttentionCall().launch()), "nothing was launched, nothing was changed"
