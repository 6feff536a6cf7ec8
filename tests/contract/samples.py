"""Sample values of every target a fault can act on, and what "the same form" and "damage" mean there.

A target row comes together with its sampler here; a fault on a target without one fails the contract.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from chaos_mm.core.fault import Outcome, Target
from chaos_mm.core.media import Audio, Image


@dataclass(frozen=True)
class Sampler:
    """``values`` makes fresh samples by name; ``digest`` is of the content, ``form`` of what a fault must keep."""

    values: Callable[[], dict[str, Any]]
    digest: Callable[[Any], str]
    form: Callable[[Any], Any]
    damage: Callable[[Any, Any], float]


def value_of(made: Any) -> Any:
    """The value of what a transform returned."""
    return made.value if isinstance(made, Outcome) else made


def digest_of(*parts: Any) -> str:
    """SHA-256 over arrays and texts."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return state.hexdigest()


def _images() -> dict[str, Any]:
    rng = np.random.default_rng(20240501)
    shapes = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}
    images = {
        mode: Image(rng.integers(0, 256, (37, 53, channels), dtype=np.uint8), mode) for mode, channels in shapes.items()
    }
    images["I;16"] = Image(rng.integers(0, 65536, (37, 53, 1), dtype=np.uint16), "I;16")
    images["one pixel"] = Image(np.full((1, 1, 3), 128, np.uint8), "RGB")
    images["wide"] = Image(rng.integers(0, 256, (1, 4096, 3), dtype=np.uint8), "RGB")
    return images


def _audios() -> dict[str, Any]:
    rng = np.random.default_rng(20240502)

    def noise(frames: int, channels: int) -> Any:
        return rng.normal(0, 0.1, (frames, channels)).astype(np.float32)

    return {
        "mono": Audio(noise(16000, 1), 16000),
        "stereo": Audio(noise(8000, 2), 44100),
        "shorter than a frame": Audio(noise(100, 1), 8000),
        "one sample": Audio(noise(1, 1), 16000),
    }


def _texts() -> dict[str, Any]:
    return {
        "plain": "Read the number in the picture, please; it has four digits and stands in the middle of the scene.",
        "placeholders": "Look at <image> and <|audio_pad|>\n and say   whether the two agree: yes or no? <image_2>",
        "scripts": "Cafe\u0301 नमस्ते दुनिया 図の数字を 한국어 \U0001f468\u200d\U0001f467 \U0001f1e9\U0001f1ea ok then",
    }


def _edited(before: str, after: str) -> float:
    """Characters that are not common to both, in order: what was cut, and what stands in its place."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return float(len(before) + len(after) - 2 * sum(block.size for block in blocks))


SAMPLERS: dict[Target, Sampler] = {
    Target.IMAGE: Sampler(
        _images,
        lambda image: digest_of(image.pixels, image.mode),
        lambda image: (image.mode, image.pixels.shape, image.pixels.dtype, image.pixels.flags.c_contiguous),
        lambda before, after: float(np.square(before.pixels.astype(float) - after.pixels).mean()),
    ),
    Target.AUDIO: Sampler(
        _audios,
        lambda audio: digest_of(audio.samples, audio.rate),
        lambda audio: (audio.rate, audio.samples.shape, audio.samples.dtype, audio.samples.flags.c_contiguous),
        lambda before, after: float(np.square(before.samples.astype(float) - after.samples).sum()),
    ),
    Target.TEXT: Sampler(
        _texts,
        lambda text: digest_of(text),
        lambda text: (type(text), text.encode() is not None),
        _edited,
    ),
}
