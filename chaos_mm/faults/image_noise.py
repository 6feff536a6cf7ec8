"""Gaussian noise on a picture."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.media import Image
from chaos_mm.core.rng import Rng

_BLOCK = 3 << 16  # samples at a time, whole pixels of 1 to 4 channels: the four buffers stay in second-level cache
_EXTREME = 1 / 256  # share of the samples drawn from the two tails by themselves, so that large deviations are right
_TAIL_LEVELS = 1 << 12  # out to 4.9 sigma


@fault(
    Target.IMAGE,
    dose="sigma",
    presets={1: {"sigma": 0.08}, 2: {"sigma": 0.12}, 3: {"sigma": 0.18}, 4: {"sigma": 0.26}, 5: {"sigma": 0.38}},
)
def image_noise(
    image: Image,
    rng: Rng,
    *,
    sigma: Annotated[float, Param("standard deviation of the noise", ge=0, le=1, unit="of full scale")] = 0.05,
) -> Image | Outcome:
    """Add Gaussian noise, as a bad sensor or a dark scene does.

    Every sample of every colour channel has its own draw, fresh for each request; alpha stays as it is. The presets are
    the severities of ``gaussian_noise`` in ImageNet-C (Hendrycks and Dietterich, 2019). PSNR is -20 log10(sigma) dB
    where nothing clips: 26.0 dB at 0.05. Takes L, LA, RGB, RGBA, CMYK and I;16; sigma is of the mode's full scale.

    Integer noise is exact, since round(x + n) = x + round(n) for an integer picture. On 8 bits the middle 255/256 of
    the normal law is 256 equally likely levels, one random byte a sample; one sample in 256, at random places, is drawn
    from 4,096 levels of the two tails instead. The variance is that of a rounded normal variable, sigma² + step²/12,
    and the sum saturates. Reports ``clipped_share``, the samples cut at black or white, counted (on 8 bits) on every
    fourth block of 196,608 samples.
    """
    if sigma == 0 or image.pixels.size == 0:
        return image
    import numpy as np

    step_sigma = sigma * image.full_scale
    noisy, clipped_share = (_on_words if image.mode == "I;16" else _on_bytes)(image, rng, step_sigma)
    if image.has_alpha:
        noisy[..., -1] = image.pixels[..., -1]
    if step_sigma < 1 and np.array_equal(noisy, image.pixels):
        return image  # so faint that not one sample was rounded to another value
    return Outcome(Image(noisy, image.mode), {"clipped_share": clipped_share})


def _on_bytes(image: Image, rng: Rng, step_sigma: float) -> tuple[Any, float]:
    """The saturating sum of x and n as max(min(x, 255 - max(n, 0)), max(-n, 0)) + n modulo 256, in tables of n."""
    import numpy as np

    ceiling, floor, noise, tail = _byte_tables(step_sigma)
    fill, look_up, flat = rng.keystream("middle"), _look_up(), image.pixels.reshape(-1)
    out, channels = np.empty_like(flat), image.pixels.shape[-1]
    random, scratch = (np.empty(min(_BLOCK, flat.size), np.uint8) for _ in range(2))
    clipped = counted = 0
    for start in range(0, flat.size, _BLOCK):
        x, y = flat[start : start + _BLOCK], out[start : start + _BLOCK]
        r, t = random[: x.size], scratch[: x.size]
        fill(r)
        np.minimum(x, look_up(r, ceiling, t), out=y)
        np.maximum(y, look_up(r, floor, t), out=y)
        if start % (4 * _BLOCK) == 0:
            cut = (y != x).reshape(-1, channels)[:, : channels - image.has_alpha]
            clipped, counted = clipped + int(np.count_nonzero(cut)), counted + cut.size
        y += look_up(r, noise, r)
    places, draws = _tail_draws(flat.size, rng)
    out[places] = np.clip(flat[places] + tail[draws], 0, 255)
    return out.reshape(image.pixels.shape), clipped / counted


def _look_up() -> Callable[[Any, bytes, Any], Any]:
    """``f(codes, table, out)``: out[i] = table[codes[i]] on uint8; stringzilla is 20 times as fast as the fallback."""
    try:
        from stringzilla import translate
    except ImportError:
        return _look_up_slowly

    def look_up(codes: Any, table: bytes, out: Any) -> Any:
        translate(codes.data, table, out=out.data)
        return out

    return look_up


def _look_up_slowly(codes: Any, table: bytes, out: Any) -> Any:
    out.data[:] = codes.tobytes().translate(table)
    return out


def _tail_draws(size: int, rng: Rng) -> tuple[Any, Any]:
    """Where the tails act and which of their levels, as int64; the count is right on average for any size."""
    import numpy as np

    count = int(size * _EXTREME + rng.random())
    words = np.frombuffer(rng.bytes(8 * count, "tails"), "<u4").astype(np.int64)
    return (words[:count] * size) >> 32, words[count:] & (_TAIL_LEVELS - 1)


def _on_words(image: Image, rng: Rng, step_sigma: float) -> tuple[Any, float]:
    """16-bit samples: 65,536 equally likely levels, out to 4.3 sigma."""
    import numpy as np

    flat = image.pixels.reshape(-1)
    wanted = flat + _word_levels(step_sigma)[np.frombuffer(rng.bytes(2 * flat.size, "words"), "<u2")]
    out = np.clip(wanted, 0, 65535)
    return out.astype(np.uint16).reshape(image.pixels.shape), float(np.mean(out != wanted))


@lru_cache(maxsize=32)
def _byte_tables(step_sigma: float) -> tuple[bytes, bytes, bytes, Any]:
    """For a random byte the ceiling, the floor and the noise modulo 256; and the noise levels of the tails."""
    import numpy as np

    middle, tail = _unit_levels()
    n = [max(-255, min(255, round(z * step_sigma))) for z in middle]  # anything beyond ±255 saturates just the same
    ceiling, floor = bytes(255 - max(v, 0) for v in n), bytes(max(-v, 0) for v in n)
    return ceiling, floor, bytes(v % 256 for v in n), np.array([round(z * step_sigma) for z in tail], np.int16)


@lru_cache(maxsize=1)
def _unit_levels() -> tuple[list[float], list[float]]:
    """Midpoint quantiles of the middle (256) and the tails (4,096), the middle scaled to a total variance of one."""
    low = _quantiles(0, _EXTREME / 2, _TAIL_LEVELS // 2)
    middle = _quantiles(_EXTREME / 2, 0.5, 128)
    left = (1 - _EXTREME * sum(z * z for z in low) / len(low)) / (1 - _EXTREME)
    scale = (left * len(middle) / sum(z * z for z in middle)) ** 0.5
    half = [z * scale for z in middle]
    return half + [-z for z in half], low + [-z for z in low]


@lru_cache(maxsize=8)
def _word_levels(step_sigma: float) -> Any:
    import numpy as np

    half = [round(z * step_sigma) for z in _quantiles(0, 0.5, 1 << 15)]
    return np.array(half + [-n for n in half], np.int32)


def _quantiles(low: float, high: float, count: int) -> list[float]:
    """The standard normal's quantiles at the midpoints of ``count`` equal steps of probability from low to high."""
    from statistics import NormalDist

    quantile = NormalDist().inv_cdf
    # Rounded, so that the last bit of a platform's logarithm never decides a table.
    return [round(quantile(low + (high - low) * (i + 0.5) / count), 9) for i in range(count)]
