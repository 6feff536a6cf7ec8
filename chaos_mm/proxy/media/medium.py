"""What a codec gives the proxy: a decoded value that knows how to be written back the way it came."""

import math
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

from chaos_mm.core.media import Audio, Image
from chaos_mm.proxy.policy import Undecodable

CEILING_DB = 120.0
"""Damage too small to measure is reported as this, since strict JSON has no infinity."""

Value = TypeVar("Value", Image, Audio)


class Medium(ABC, Generic[Value]):
    """One decoded picture or clip with what is needed to encode another in its format."""

    value: Value

    def encode(self, value: Value) -> bytes:
        """The source's format, quality and metadata around other content. Raises Undecodable("not_encodable")."""
        self.check(value)
        try:
            return self.written(value)
        except Exception:  # encoders raise many kinds on what a damaged header made them promise
            raise Undecodable("not_encodable") from None

    def achieved(self, encoded: bytes, value: Value) -> dict[str, float]:
        """The damage that a receiver of `encode(value)` sees against the source, by name and unit.

        Raises Undecodable("not_encodable") when what was written cannot be read again.
        """
        try:
            return self.damage(self.delivered(encoded, value))
        except Exception:  # as above
            raise Undecodable("not_encodable") from None

    @abstractmethod
    def check(self, value: Value) -> None:
        """Raises Undecodable("not_encodable") for what a fault must not return."""

    @abstractmethod
    def written(self, value: Value) -> bytes:
        """Encode a checked value; raises whatever the codec raises."""

    @abstractmethod
    def delivered(self, encoded: bytes, value: Value) -> Value:
        """What a receiver decodes from `encoded`, which `encode(value)` returned."""

    @abstractmethod
    def damage(self, delivered: Value) -> dict[str, float]:
        """The damage of a delivered value against the source, by name and unit; what cannot be told is left out."""


class Picture(Medium[Image]):
    """A decoded picture."""

    def __init__(self, value: Image) -> None:
        self.value = value

    def check(self, value: Image) -> None:
        """A picture may change its size but not its mode or depth. Raises Undecodable."""
        channels = self.value.pixels.shape[2]
        if value.mode != self.value.mode or value.pixels.dtype != self.value.pixels.dtype:
            raise Undecodable("not_encodable")
        if value.pixels.ndim != 3 or value.pixels.shape[2] != channels or value.pixels.size == 0:
            raise Undecodable("not_encodable")

    def delivered(self, encoded: bytes, value: Image) -> Image:
        """A lossless format delivers what was encoded."""
        return value

    def damage(self, delivered: Image) -> dict[str, float]:
        """`psnr_db`, nothing when the size changed."""
        before, after = self.value, delivered
        if before.pixels.shape != after.pixels.shape:
            return {}
        return {"psnr_db": psnr_db(before, after)}


class Clip(Medium[Audio]):
    """A decoded clip."""

    def __init__(self, value: Audio) -> None:
        self.value = value

    def check(self, value: Audio) -> None:
        """A clip may change its length, rate and channels, not its type. Raises Undecodable."""
        samples = value.samples
        if samples.dtype != np.float32 or samples.ndim != 2 or not samples.shape[1] or value.rate < 1:
            raise Undecodable("not_encodable")

    def damage(self, delivered: Audio) -> dict[str, float]:
        """`snr_db` over the frames both have; nothing for silence or another rate or channel count."""
        before, after = self.value, delivered
        if before.rate != after.rate or before.samples.shape[1] != after.samples.shape[1]:
            return {}
        frames = min(len(before.samples), len(after.samples))
        figure = snr_db(before.samples[:frames], after.samples[:frames])
        return {} if figure is None else {"snr_db": figure}


def psnr_db(before: Image, after: Image) -> float:
    """Peak signal to noise ratio in dB over the colour channels, 10 log10(full_scale² / MSE), at most CEILING_DB."""
    colours = before.pixels.shape[2] - before.has_alpha
    total, count = 0.0, 0
    rows = max(1, 65536 // max(1, before.pixels.shape[1] * before.pixels.shape[2]))
    for top in range(0, before.pixels.shape[0], rows):  # blocks of rows stay in cache and bound the memory
        one = before.pixels[top : top + rows, :, :colours]
        difference = np.subtract(one, after.pixels[top : top + rows, :, :colours], dtype=np.float32)
        total += float(np.vdot(difference, difference))
        count += difference.size
    return min(CEILING_DB, _ratio_db(before.full_scale**2, total / count))


def snr_db(before: Any, after: Any) -> float | None:
    """Signal to noise ratio in dB, 10 log10(Σ before² / Σ (before - after)²), None for a silent or empty clip."""
    noise = np.subtract(before, after, dtype=np.float64)
    power = float(np.vdot(before, before)) if before.size else 0.0
    if power <= 0.0 or not math.isfinite(power):
        return None
    return max(-CEILING_DB, min(CEILING_DB, _ratio_db(power, float(np.vdot(noise, noise)))))


def _ratio_db(power: float, noise: float) -> float:
    return 10.0 * math.log10(power / noise) if noise > 0.0 else CEILING_DB
