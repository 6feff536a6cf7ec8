"""Spectrograms as pictures: level in dB of full scale by time and frequency, in colours, without text.

Several clips are drawn on the same axes and the same scale of level, so that they can be laid side by side.
"""

import io
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image as PillowImage
from scipy import fft

from chaos_mm.core.media import Audio
from chaos_mm.proxy.media.magma import MAGMA

WIDTH, HEIGHT = 640, 240
MAX_SECONDS: Final = 30.0
_MAX_SAMPLES = 1_000_000  # over all channels: bounds time and memory
_FRAMES = 256  # transformed at a time
_WINDOW_SECONDS = 0.032  # tells the harmonics of a voice apart and still shows a syllable
_RANGE_DB = 80.0
_STEP_DB = 1.25  # coarser than the eye tells apart in this map; finer steps only make the file larger
_FLOOR = 1e-30  # the power of what is not there: -300 dB


class Axes(NamedTuple):
    """What the pictures show: seconds from the left edge, which is 0; hertz from the bottom, 0; dB of full scale."""

    seconds: float
    hz_max: float
    db_min: float
    db_max: float


def draw(clips: Sequence[Audio]) -> tuple[list[bytes], Axes]:
    """A PNG of 640 x 240 for each clip, all on the same axes: linear in time and frequency, 80 dB of level.

    A sine at full scale is at 0 dB; `db_max` is the loudest of all clips rounded up to 10 dB. Channels are averaged by
    power. Only the first 30 s are drawn, of a high rate or many channels less. Raises ValueError without any sample.
    """
    clips = [_beginning(clip) for clip in clips]
    seconds, hz_max = max(clip.seconds for clip in clips), max(clip.rate for clip in clips) / 2
    if not seconds:
        raise ValueError("there is nothing to draw: no clip holds a sample")
    levels = [10 * np.log10(np.maximum(_plane(clip, seconds, hz_max), _FLOOR)) for clip in clips]
    loudest = max(float(level.max()) for level in levels)
    top = 10.0 * math.ceil(round(loudest, 2) / 10) if loudest > -_RANGE_DB else 0.0
    axes = Axes(seconds, hz_max, top - _RANGE_DB, top)
    return [_png(level, axes) for level in levels], axes


def _beginning(clip: Audio) -> Audio:
    most = min(int(MAX_SECONDS * clip.rate), _MAX_SAMPLES // clip.samples.shape[1])
    return Audio(clip.samples[:most], clip.rate)


def _plane(clip: Audio, seconds: float, hz_max: float) -> Any:
    """Power (HEIGHT, WIDTH), the lowest frequency first; zero where the clip has ended or has no such frequency."""
    size = max(2, 2 * round(_WINDOW_SECONDS * clip.rate / 2))
    hop = max(1, min(size // 4, len(clip.samples) // WIDTH))
    power = _power(clip.samples, size, hop)
    # Row and column edges in bins and frames; each pixel shows the strongest of its own, or the nearest.
    rows = np.rint(np.arange(HEIGHT) * (hz_max / HEIGHT * size / clip.rate)).astype(int)
    columns = np.rint(np.arange(WIDTH) * (seconds / WIDTH * clip.rate / hop)).astype(int)
    rows, columns = rows[rows < power.shape[0]], columns[columns < power.shape[1]]
    plane = np.zeros((HEIGHT, WIDTH))
    plane[: len(rows), : len(columns)] = np.maximum.reduceat(np.maximum.reduceat(power, rows, 0), columns, 1)
    return plane


def _power(samples: Any, size: int, hop: int) -> Any:
    """Mean over the channels, (bins, frames), of Hann windows centred on 0, hop, 2 hop …; a full-scale sine is 1.

    By scipy.fft, which the proxy has loaded; importing scipy.signal would cost its start a second and 30 MB.
    """
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)
    count = -(-len(samples) // hop)
    total = np.zeros((size // 2 + 1, count), np.float32)
    for channel in samples.T:
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(channel, (size // 2, size)), size)[::hop]
        for first in range(0, count, _FRAMES):
            spectrum = fft.rfft(frames[first : min(first + _FRAMES, count)] * window, axis=1)
            total[:, first : first + _FRAMES] += np.square(np.abs(spectrum)).T
    return total * (np.square(2 / window.sum()) / samples.shape[1])


def _png(level: Any, axes: Axes) -> bytes:
    steps = np.rint((np.flipud(level) - axes.db_min) / _STEP_DB)
    colours = np.clip(steps * (_STEP_DB / _RANGE_DB * 255), 0, 255).astype(np.uint8)
    picture, out = PillowImage.fromarray(colours, "L"), io.BytesIO()
    picture.putpalette(MAGMA)
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()
