"""qformer_gradient_noise in a real fine-tuning loop of a tiny Q-Former, and against its formula."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from transformers import Blip2QFormerConfig, Blip2QFormerModel

from chaos_mm.core.engine import NOT_NOW
from chaos_mm.core.rng import Rng
from chaos_mm.faults.qformer_gradient_noise import qformer_gradient_noise
from tests.contract.engine_samples_embedding import GradientTap, LayerGradient

pytestmark = pytest.mark.model
STEPS = 6


def _rng() -> Rng:
    return Rng.derive(3, "train", "0", "qformer_gradient_noise")


def _gradient(step: int = 0, module: str = "qformer", dtype: torch.dtype = torch.float32) -> LayerGradient:
    drawn = 1e-4 * torch.randn(8, 32, 64, generator=torch.Generator().manual_seed(4))
    return LayerGradient("qformer", module, drawn.to(dtype), step)


def _noise(value: LayerGradient, **params: Any) -> torch.Tensor:
    qformer_gradient_noise(value, _rng(), **params)
    assert value.new is not None
    return value.new.double() - value.tensor.double()


@pytest.mark.parametrize("step", [0, 1, 35, 100])
@pytest.mark.parametrize("damping", [0.0, 0.02, 0.1])
def test_the_noise_is_sigma_times_exp_of_minus_damping_t_of_the_gradient_s_std(step: int, damping: float):
    value = _gradient(step)
    noise = _noise(value, sigma=2.0, damping=damping)
    wanted = 2.0 * math.exp(-damping * step)
    std = float(value.tensor.double().std(correction=0))
    assert float(noise.std(correction=0)) / std == pytest.approx(wanted, rel=0.02)
    made = qformer_gradient_noise(_gradient(step), _rng(), sigma=2.0, damping=damping)
    assert made.achieved["noise_sigma"] == pytest.approx(wanted, rel=1e-12)
    assert made.achieved["rms_sigma"] == pytest.approx(wanted, rel=0.02)
    assert made.achieved["step"] == step


def test_damped_by_two_hundredths_half_is_left_after_35_steps():
    made = qformer_gradient_noise(_gradient(35), _rng(), sigma=1.0, damping=0.02)
    assert made.achieved["noise_sigma"] == pytest.approx(0.5, abs=0.005)


def test_the_noise_is_normal_and_fresh_for_each_step_and_module():
    first, again, later, other = (
        _noise(_gradient(step, module)).reshape(-1).numpy()
        for step, module in ((0, "qformer"), (0, "qformer"), (1, "qformer"), (0, "qformer.encoder.layer.0"))
    )
    assert (first == again).all()
    assert stats.kstest(first / first.std(), "norm").pvalue > 1e-3
    for independent in (later, other):
        assert abs(stats.pearsonr(first, independent).statistic) < 4 / math.sqrt(first.size)


def test_zeros_another_place_and_dose_zero_are_let_pass():
    zeros = LayerGradient("qformer", "qformer", torch.zeros(4, 4), 0)
    assert qformer_gradient_noise(zeros, _rng()) is NOT_NOW
    assert qformer_gradient_noise(_gradient(), _rng(), place="vision") is NOT_NOW
    assert qformer_gradient_noise(_gradient(), _rng(), sigma=0.0) is NOT_NOW


def test_a_gradient_that_is_not_finite_is_refused_by_name():
    value = _gradient()
    value.tensor[0, 0, 0] = torch.inf
    with pytest.raises(ValueError, match="qformer_gradient_noise: the gradient at 'qformer' is not finite"):
        qformer_gradient_noise(value, _rng())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_type_and_shape_stay(dtype: torch.dtype):
    value = _gradient(dtype=dtype)
    _noise(value)
    assert value.new is not None and value.new.dtype is dtype and value.new.shape == value.tensor.shape


def _model() -> Any:
    config = Blip2QFormerConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        encoder_hidden_size=32,
        cross_attention_frequency=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(8)
        return Blip2QFormerModel(config).train()


def _train(armed: Callable[[int], bool], hooked: bool = True, **params: Any) -> tuple[list[Any], list[Any], Any]:
    """Gradients and weights after each step of a real loop on fixed data, and the hook."""
    torch.set_num_threads(1)
    model, data = _model(), torch.Generator().manual_seed(9)
    queries, patches, wanted = (torch.randn(4, n, 32, generator=data) for n in (6, 10, 6))

    def strike(value: LayerGradient) -> Any:
        return qformer_gradient_noise(value, _rng(), **params) if armed(value.step) else NOT_NOW

    tap = GradientTap(model, strike) if hooked else None
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    gradients, weights = [], []
    for step in range(STEPS):
        if tap is not None:
            tap.step = step
        optimiser.zero_grad()
        output = model(query_embeds=queries, encoder_hidden_states=patches).last_hidden_state
        (output - wanted).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        optimiser.step()
        weights.append([p.detach().clone() for p in model.parameters()])
    if tap is not None:
        tap.remove()
    return gradients, weights, tap


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) > 0 and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_hook_that_never_strikes_leaves_training_bit_identical():
    bare, hooked = _train(lambda _: False, hooked=False), _train(lambda _: False)
    assert all(_same(a, b) for a, b in zip(bare[0], hooked[0], strict=True))
    assert _same(bare[1][-1], hooked[1][-1])
    assert hooked[2].answers == [NOT_NOW] * STEPS


def test_armed_noise_changes_the_q_former_s_own_weights():
    clean, hurt = _train(lambda _: False, hooked=False), _train(lambda step: step >= 2, sigma=1.0)
    assert _same(clean[1][1], hurt[1][1]), "before it was armed"
    assert not _same(clean[0][2], hurt[0][2])
    changed = [not torch.equal(a, b) for a, b in zip(clean[1][2], hurt[1][2], strict=True)]
    learning = [not torch.equal(a, b) for a, b in zip(clean[1][1], clean[1][2], strict=True)]
    assert any(learning) and all(c for c, learns in zip(changed, learning, strict=True) if learns)
    assert [answer is not NOT_NOW for answer in hurt[2].answers] == [False, False, True, True, True, True]


def test_after_release_gradients_are_those_of_an_unhooked_run_from_the_same_weights():
    """The first gradients after release, from the weights at that moment, are bit-identical to an unhooked model's."""
    _, weights, _ = _train(lambda step: step < 3, sigma=1.0)
    released, _, _ = _train(lambda step: step < 3, sigma=1.0)
    model, data = _model(), torch.Generator().manual_seed(9)
    queries, patches, wanted = (torch.randn(4, n, 32, generator=data) for n in (6, 10, 6))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights[2], strict=True):
            parameter.copy_(value)
    output = model(query_embeds=queries, encoder_hidden_states=patches).last_hidden_state
    (output - wanted).square().mean().backward()
    assert _same(released[3], [p.grad for p in model.parameters() if p.grad is not None])


def test_damping_follows_the_formula_over_a_real_run():
    _, _, tap = _train(lambda _: True, sigma=2.0, damping=0.02)
    factors = [answer.achieved["rms_sigma"] for answer in tap.answers]
    assert factors == pytest.approx([2.0 * math.exp(-0.02 * t) for t in range(STEPS)], rel=0.08)
