"""A job that fine-tunes the demo target's encoders with the agent attached: noise while leased, exact afterwards."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.target.model import load
from tests.agent.transformers.attached import attached, hooked_modules

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]
STEPS = 4


def _trainable() -> Any:
    """The shipped model in training mode, without dropout, so that the same steps give the same gradients."""
    model = load().train()
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def _train(model: Any, request: str) -> list[list[torch.Tensor]]:
    """Gradients of the Q-Former at each step; the weights are put back at the end."""
    before = [p.detach().clone() for p in model.parameters()]
    pixels = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    optimiser, gradients = torch.optim.SGD(model.parameters(), lr=0.01), []
    for _ in range(STEPS):
        optimiser.zero_grad()
        with serving.running([request]):
            torch.cat([part.flatten() for part in model.see(pixels)]).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.qformer.parameters() if p.grad is not None])
        optimiser.step()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    return gradients


def _same(a: list[list[torch.Tensor]], b: list[list[torch.Tensor]]) -> bool:
    return all(torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


def test_noise_is_damped_by_the_formula_and_gradients_are_exact_after_release(tmp_path: Path) -> None:
    model = _trainable()
    bare = _train(model, "job")
    assert len(bare[0]) > 10 and _same(bare, _train(model, "job")), "the job itself repeats to the bit"
    with attached(tmp_path / "state", model) as agent:
        assert _same(_train(model, "job"), bare), "disarmed hooks change nothing"
        lease = agent.put("qformer_gradient_noise", selector="live", sigma=2.0, damping=0.02)
        hurt = _train(model, "job")
        shown = agent.release(lease)
        assert _same(_train(model, "job"), bare), "released"
    assert hooked_modules(model) == 0 and _same(_train(model, "job"), bare)
    assert not _same(hurt, bare)
    factors = [2.0 * math.exp(-0.02 * t) for t in range(STEPS)]
    told = shown["achieved"]["noise_sigma"]
    assert (told["count"], told["min"], told["max"]) == (STEPS, pytest.approx(factors[-1]), pytest.approx(factors[0]))
    assert told["mean"] == pytest.approx(sum(factors) / STEPS)
    assert shown["sites"] == {"qformer": STEPS} and shown["errored"] == 0
