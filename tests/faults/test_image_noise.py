"""image_noise against closed forms, published figures and scipy's normal distribution."""

import hashlib
import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from chaos_mm.core.media import Image
from chaos_mm.core.rng import Rng
from chaos_mm.faults.image_noise import image_noise
from tests.contract.samples import value_of

SIDE = 592  # 592 * 592 * 3 = 1,051,392 samples


def _noisy(image: Image, sigma: float, request: str = "r-1") -> Any:
    return value_of(image_noise(image, Rng.derive(3, request, "0", "image_noise"), sigma=sigma)).pixels


def _flat(value: int, shape: tuple[int, ...] = (SIDE, SIDE, 3), mode: str = "RGB") -> Image:
    return Image(np.full(shape, value, np.uint16 if mode == "I;16" else np.uint8), mode)


def _draws(sigma: float, request: str = "r-1") -> Any:
    """The noise itself, in steps of 1/255 and cut at ±255: black shows its positive half, white its negative one."""
    black, white = (_noisy(_flat(value), sigma, request).astype(np.int64) for value in (0, 255))
    return (black + white - 255).reshape(-1)


@pytest.mark.parametrize("sigma", [0.01, 0.03, 0.05, 0.1, 0.18, 0.26, 0.4])
def test_mean_and_sigma_over_a_million_samples(sigma: float):
    steps, draws = sigma * 255, _draws(sigma)
    cut = stats.norm(scale=steps)
    wanted = math.sqrt(cut.expect(lambda n: np.clip(n, -255, 255) ** 2, -8 * steps, 8 * steps) + 1 / 12)
    assert abs(draws.mean()) < 3 * draws.std() / math.sqrt(draws.size)
    assert draws.std() == pytest.approx(wanted, rel=0.01)  # the issue asks for 5 %


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
def test_distribution_is_normal_body_and_tails(sigma: float):
    steps, draws = sigma * 255, _draws(sigma)
    jitter = np.random.default_rng(5).uniform(-0.5, 0.5, 20_000)  # undoes the rounding
    assert stats.kstest((draws[:20_000] + jitter) / steps, "norm").pvalue > 1e-3
    assert abs(stats.skew(draws)) < 0.02
    assert abs(stats.kurtosis(draws)) < 0.05
    for beyond in (1, 2, 3, 3.5, 4):
        edge = math.floor(beyond * steps) + 0.5
        wanted = 2 * stats.norm.sf(edge / steps) * draws.size
        assert abs(np.count_nonzero(abs(draws) > edge) - wanted) < 4.5 * math.sqrt(wanted) + 0.005 * draws.size * (
            beyond < 3
        ), f"beyond {beyond} sigma"


@pytest.mark.parametrize(("sigma", "psnr"), [(0.01, 40.0), (0.05, 26.02), (0.1, 20.0)])
def test_psnr_on_mid_grey_is_the_theory_s(sigma: float, psnr: float):
    grey = _flat(128)
    mse = np.square(_noisy(grey, sigma).astype(float) - 128).mean()
    assert 10 * math.log10(255**2 / mse) == pytest.approx(psnr, abs=0.1)


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.08), (2, 0.12), (3, 0.18), (4, 0.26), (5, 0.38)])
def test_presets_are_those_of_imagenet_c(severity: int, sigma: float):
    assert image_noise.bind({}, severity)["sigma"] == sigma


def test_the_sum_saturates_and_never_wraps():
    rng = np.random.default_rng(1)
    source = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    for sigma in (0.05, 0.38, 1.0):
        noise = _draws(sigma).reshape(source.shape)  # the draws do not depend on the picture
        assert np.array_equal(_noisy(Image(source, "RGB"), sigma), np.clip(source + noise, 0, 255))


@pytest.mark.parametrize("value", [0, 3, 128, 255])
def test_clipped_share_is_the_share_that_black_or_white_cut(value: int):
    made = image_noise(_flat(value), Rng.derive(3, "r-1", "0", "image_noise"), sigma=0.05)
    steps = 0.05 * 255
    wanted = stats.norm.cdf((-0.5 - value) / steps) + stats.norm.sf((255.5 - value) / steps)
    assert made.achieved["clipped_share"] == pytest.approx(wanted, abs=0.003)


def test_neighbours_and_requests_are_independent():
    draws, other = _draws(0.1), _draws(0.1, "r-2")
    limit = 4 / math.sqrt(draws.size)
    assert abs(np.corrcoef(draws, other)[0, 1]) < limit
    for lag in (1, 2, 3, SIDE * 3, 98_304, 196_608):
        assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < limit * 1.2, f"lag {lag}"


@pytest.mark.parametrize(("mode", "channels"), [("LA", 2), ("RGBA", 4)])
def test_alpha_is_untouched_and_not_counted(mode: str, channels: int):
    source = np.full((300, 200, channels), 128, np.uint8)
    source[..., -1] = np.random.default_rng(2).integers(0, 256, (300, 200))
    made = image_noise(Image(source, mode), Rng.derive(3, "r-1", "0", "image_noise"), sigma=0.05)
    assert np.array_equal(made.value.pixels[..., -1], source[..., -1])
    assert np.square(made.value.pixels[..., :-1].astype(float) - 128).mean() == pytest.approx(162.6, rel=0.03)
    assert made.achieved["clipped_share"] == 0


def test_sixteen_bits_have_their_own_full_scale():
    noise = _noisy(_flat(32768, (1024, 1024, 1), "I;16"), 0.05).astype(float) - 32768
    assert noise.std() == pytest.approx(0.05 * 65535, rel=0.01)
    assert abs(noise.mean()) < 3 * noise.std() / 1024
    assert 0.9 < np.count_nonzero(abs(noise) > 3 * 0.05 * 65535) / (2 * stats.norm.sf(3) * noise.size) < 1.1
    assert _noisy(_flat(65535, (64, 64, 1), "I;16"), 0.3).max() == 65535


def test_the_faintest_noise_changes_few_samples_or_hands_the_picture_back():
    grey = _flat(128)
    changed = np.count_nonzero(_noisy(grey, 0.001) != 128) / grey.pixels.size  # 0.255 steps
    assert changed == pytest.approx(2 * stats.norm.sf(0.5 / 0.255), rel=0.1)
    assert value_of(image_noise(grey, Rng.derive(3, "r", "0", "image_noise"), sigma=1e-6)) is grey


def test_an_empty_picture_comes_back():
    empty = Image(np.zeros((0, 5, 3), np.uint8), "RGB")
    assert image_noise(empty, Rng.derive(3, "r", "0", "image_noise"), sigma=0.5) is empty


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(["L", "LA", "RGB", "RGBA", "CMYK"]), st.floats(1e-4, 1))
def test_any_size_mode_and_sigma_gives_the_same_twice(height: int, width: int, mode: str, sigma: float):
    channels = {"L": 1, "LA": 2, "RGB": 3}.get(mode, 4)
    source = np.random.default_rng(height).integers(0, 256, (height, width, channels), dtype=np.uint8)
    first, second = (_noisy(Image(source.copy(), mode), sigma) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.shape == source.shape and first.dtype == np.uint8


def test_damage_does_not_depend_on_the_size():
    mse = [np.square(_noisy(_flat(128, (side, side, 3)), 0.1).astype(float) - 128).mean() for side in (32, 224, 1024)]
    assert max(mse) / min(mse) < 1.1


def test_the_pixels_of_a_request_are_pinned():
    """A replay must give the same pixels in every release; a new method must come under a new name."""
    digest = hashlib.sha256(_noisy(_flat(100, (64, 64, 3)), 0.05).tobytes()).hexdigest()
    assert digest == "56279b8a8e7551e4385181c29a2feb72c764d969d7814c6f4d4975549a351f18"


def test_without_stringzilla_the_pixels_are_the_same(monkeypatch: pytest.MonkeyPatch):
    grey = _flat(100, (200, 200, 3))
    fast = _noisy(grey, 0.05)
    monkeypatch.setitem(sys.modules, "stringzilla", None)
    assert np.array_equal(_noisy(grey, 0.05), fast)
