"""Pictures and clips of every kind, and the plain damage that tests do to them."""

import io
from functools import cache
from typing import Any

import numpy as np
import soundfile
from PIL import Image as PillowImage

from chaos_mm.core.media import Audio, Image
from chaos_mm.proxy.policy import Limits

LIMITS = Limits()


@cache
def scene(width: int = 61, height: int = 47) -> PillowImage.Image:
    """Smooth colours with an edge: compresses like a photograph."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    planes = [220 * x, 200 * y, 128 + 100 * np.sin(6 * x * y), 255 * (x > y)]
    return PillowImage.fromarray(np.stack(planes, 2).astype(np.uint8), "RGBA")


def saved(picture: PillowImage.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def loaded(data: bytes) -> PillowImage.Image:
    picture = PillowImage.open(io.BytesIO(data))
    picture.load()
    return picture


def noisy(image: Image, sigma: float = 0.1, seed: int = 1) -> Image:
    """Gaussian noise by numpy, alpha left alone."""
    rng = np.random.default_rng(seed)
    wanted = image.pixels + rng.normal(0, sigma * image.full_scale, image.pixels.shape)
    pixels = np.clip(np.rint(wanted), 0, image.full_scale).astype(image.pixels.dtype)
    if image.has_alpha:
        pixels[..., -1] = image.pixels[..., -1]
    return Image(pixels, image.mode)


def tone(channels: int = 1, rate: int = 16000, seconds: float = 0.5) -> Any:
    """A decaying chord, float32 (frames, channels)."""
    t = np.arange(int(rate * seconds)) / rate
    wave = 0.4 * np.exp(-2 * t) * (np.sin(2 * np.pi * 440 * t) + 0.5 * np.sin(2 * np.pi * 1234 * t))
    return np.stack([wave * (1 - 0.3 * c) for c in range(channels)], 1).astype(np.float32)


def written(samples: Any, kind: str = "WAV", subtype: str = "PCM_16", rate: int = 16000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def heard(data: bytes) -> tuple[Any, int]:
    """Samples float64 (frames, channels) and rate, by libsndfile."""
    samples, rate = soundfile.read(io.BytesIO(data), always_2d=True)
    return samples, rate


def hissing(audio: Audio, sigma: float = 0.01, seed: int = 1) -> Audio:
    rng = np.random.default_rng(seed)
    return Audio((audio.samples + rng.normal(0, sigma, audio.samples.shape)).astype(np.float32), audio.rate)
