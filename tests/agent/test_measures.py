"""The measures against closed forms and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from chaos_mm.agent import measures


def _draw(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_uniform_attention_has_entropy_ln_n_and_every_head_has_vanished():
    figures = measures.attention(torch.zeros(4, 8, 16), _draw(4, 8, 16), causal=False)
    assert figures.entropy_nats == pytest.approx(math.log(8), abs=1e-6)
    assert figures.entropy_ratio == pytest.approx(1, abs=1e-6)
    assert figures.max_share == pytest.approx(1 / 8, abs=1e-6)
    assert figures.vanished_heads == 1 and figures.nonfinite == 0


def test_causal_uniform_attention_is_one_of_ln_n_of_what_each_query_sees():
    figures = measures.attention(torch.zeros(2, 6, 4), _draw(2, 6, 4))
    # The first query sees itself alone and has nothing to spread.
    assert figures.entropy_nats == pytest.approx(sum(math.log(n) for n in range(2, 7)) / 5, abs=1e-6)
    assert figures.entropy_ratio == pytest.approx(1, abs=1e-6)
    assert figures.max_share == pytest.approx(sum(1 / n for n in range(2, 7)) / 5, abs=1e-6)


def test_one_hot_attention_has_entropy_zero_and_all_on_one_token():
    keys = torch.eye(8)[None]
    figures = measures.attention(1000 * keys, keys, causal=False)
    assert figures.entropy_nats == pytest.approx(0, abs=1e-9)
    assert figures.entropy_ratio == pytest.approx(0, abs=1e-9)
    assert figures.max_share == pytest.approx(1) and figures.vanished_heads == 0


@pytest.mark.parametrize(("heads", "kv_heads", "n", "m"), [(4, 4, 10, 10), (8, 2, 3, 40), (6, 1, 1, 12)])
def test_entropy_and_largest_share_are_scipy_s(heads: int, kv_heads: int, n: int, m: int):
    q, k = 2 * _draw(heads, n, 16), _draw(kv_heads, m, 16, seed=2)
    figures = measures.attention(q, k)
    nats, ratios, largest = [], [], []
    for head in range(heads):
        keys = k[head * kv_heads // heads].double().numpy()
        for i in range(n):
            seen = m - n + i + 1
            if seen > 1:
                p = special.softmax(keys[:seen] @ q[head, i].double().numpy() / 4)
                nats.append(stats.entropy(p))
                ratios.append(stats.entropy(p, base=seen))
                largest.append(p.max())
    assert figures.entropy_nats == pytest.approx(np.mean(nats), rel=1e-5)
    assert figures.entropy_ratio == pytest.approx(np.mean(ratios), rel=1e-5)
    assert figures.max_share == pytest.approx(np.mean(largest), rel=1e-5)


def test_without_the_sink_the_rest_is_a_distribution_of_its_own():
    q, k = _draw(2, 12, 16), _draw(2, 12, 16, seed=2)
    q[..., 0], k[:, 0, 0] = q[..., 0] + 4, 8  # a first token that draws every query
    figures = measures.attention(q, k, skip_sink=True)
    wanted = [
        stats.entropy(special.softmax(k[h, 1 : i + 1].double().numpy() @ q[h, i].double().numpy() / 4))
        for h in range(2)
        for i in range(2, 12)
    ]
    assert figures.entropy_nats == pytest.approx(np.mean(wanted), rel=1e-4)
    whole = measures.attention(q, k)
    assert whole.max_share is not None and figures.max_share is not None
    assert whole.max_share > figures.max_share


def test_a_share_of_the_heads_has_vanished():
    q = _draw(8, 20, 16)
    q[[1, 5]] = 0
    assert measures.attention(3 * q, _draw(8, 20, 16, seed=2)).vanished_heads == pytest.approx(2 / 8)


def test_the_stated_scale_counts():
    q, k = _draw(2, 9, 16), _draw(2, 9, 16, seed=2)
    assert measures.attention(q, k, scale=0.25) == measures.attention(q, k)
    sharp, flat = (measures.attention(q, k, scale=scale).entropy_nats for scale in (2.0, 0.01))
    assert sharp is not None and flat is not None and sharp < flat


def test_a_long_call_is_sampled_and_the_sample_holds_first_and_last():
    q, k = torch.zeros(1, 1000, 4), _draw(1, 1000, 4)
    weights, visible = measures.attention_weights(q, k, causal=True)
    assert weights.shape == (1, measures.MAX_QUERIES, 1000)
    assert visible[0] == 1 and visible[-1] == 1000
    assert torch.allclose(weights.sum(-1), torch.ones(1, measures.MAX_QUERIES))


def test_what_is_no_number_is_counted_and_kept_out():
    q, k = _draw(2, 6, 4), _draw(2, 6, 4, seed=2)
    q[0, 3, 1] = torch.nan
    figures = measures.attention(q, k)
    assert figures.nonfinite == 1 and figures.kl_nats is None
    assert figures.entropy_nats is not None and math.isfinite(figures.entropy_nats)
    k.fill_(torch.inf)
    nothing = measures.attention(q, k)
    assert nothing.nonfinite == 1 + k.numel()
    assert nothing.entropy_nats is nothing.entropy_ratio is nothing.max_share is nothing.vanished_heads is None


@pytest.mark.parametrize(("q", "k"), [((4, 3, 8), (3, 3, 8)), ((4, 3, 8), (4, 3, 4)), ((4, 5, 8), (4, 3, 8))], ids=str)
def test_shapes_that_do_not_fit_are_named(q: tuple[int, ...], k: tuple[int, ...]):
    with pytest.raises(ValueError, match="do not fit") as caught:
        measures.attention(torch.zeros(q), torch.zeros(k))
    assert str(q) in str(caught.value) and str(k) in str(caught.value)


def test_kl_of_a_sample_from_itself_is_zero():
    sample = _draw(50, 16)
    assert measures.gaussian_kl(sample, sample) == pytest.approx(0, abs=1e-12)
    # Scaled so that queries are keys.
    assert measures.attention(sample[None], sample[None]).kl_nats == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 2.0), (1.0, 1.0), (-0.5, 0.5)])
def test_kl_of_two_normals_is_the_integral(mean: float, std: float):
    """Numerically integrated: p ln(p / q) over the line, for samples of exactly those moments."""
    unit = _draw(4000, 3).double()
    unit = (unit - unit.mean(0)) / unit.std(0, correction=0)
    x = np.linspace(-40, 40, 400_001)
    log_p, log_q = stats.norm.logpdf(x), stats.norm.logpdf(x, mean, std)
    wanted = np.trapezoid(np.exp(log_p) * (log_p - log_q), x)
    assert measures.gaussian_kl(unit, mean + std * unit) == pytest.approx(wanted, rel=1e-6)


def test_kl_of_a_collapsed_side_is_large_and_finite():
    kl = measures.gaussian_kl(_draw(50, 8), torch.zeros(50, 8))
    assert 1e3 < kl < math.inf
    assert measures.gaussian_kl(torch.zeros(50, 8), torch.zeros(50, 8)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_nonfinite_counts_nan_and_both_infinities_in_every_type(dtype: torch.dtype):
    tensor = torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0]).to(dtype)
    assert measures.nonfinite(tensor) == 3


def test_shift_is_in_standard_deviations_and_has_no_sign():
    mean = torch.arange(5.0)
    assert measures.shift_sigma(mean + 3, mean, 2.0) == pytest.approx(1.5)
    assert measures.shift_sigma(mean - 3, mean, 2.0) == pytest.approx(1.5)
    assert measures.shift_sigma(mean, mean, 2.0) == 0
    with pytest.raises(ValueError, match="must be above zero"):
        measures.shift_sigma(mean, mean, 0.0)


def test_alignment_is_the_cosine():
    assert measures.alignment(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 0.0])) == pytest.approx(1)
    assert measures.alignment(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])) == pytest.approx(0, abs=1e-12)
    assert measures.alignment(torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 0.0])) == pytest.approx(-math.sqrt(0.5))
    assert math.isnan(measures.alignment(torch.zeros(2), torch.ones(2)))
