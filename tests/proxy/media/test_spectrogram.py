"""Spectrograms: right by arithmetic for tones, equal to librosa's for everything else, alike in scale."""

import io
from typing import Any

import librosa
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from chaos_mm.core.media import Audio
from chaos_mm.proxy.media.magma import MAGMA
from chaos_mm.proxy.media.spectrogram import HEIGHT, WIDTH, Axes, draw

HALF_STEP_DB = 0.63


def tone(hertz: float, rate: int = 16000, seconds: float = 2.0, level: float = 1.0) -> Audio:
    time = np.arange(int(rate * seconds)) / rate
    return Audio((level * np.sin(2 * np.pi * hertz * time)).astype(np.float32)[:, None], rate)


def seen(picture: bytes) -> Any:
    """The colours' places in the map, 0 to 255, the top row first."""
    opened = Image.open(io.BytesIO(picture))
    assert (opened.format, opened.size) == ("PNG", (WIDTH, HEIGHT))
    keys = np.arange(3)[::-1] * 8
    colours = (np.frombuffer(MAGMA, np.uint8).reshape(256, 3).astype(int) << keys).sum(1)
    pixels = (np.asarray(opened.convert("RGB")).astype(int) << keys).sum(2)
    place = np.zeros(1 << 24, np.int16) - 1
    place[colours] = np.arange(256)
    assert place[pixels].min() >= 0
    return place[pixels]


def decibels(picture: bytes, axes: Axes) -> Any:
    return axes.db_min + seen(picture) / 255 * (axes.db_max - axes.db_min)


def test_the_colours_are_magma() -> None:
    theirs = np.asarray(colormaps["magma"](np.arange(256)))[:, :3] * 255
    assert np.abs(np.frombuffer(MAGMA, np.uint8).reshape(256, 3) - theirs).max() <= 0.5


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("share", [0.1, 0.33, 0.5, 0.9])
def test_a_tone_is_a_ridge_at_its_own_row(rate: int, share: float) -> None:
    (picture,), axes = draw([tone(share * rate / 2, rate)])
    assert axes == (2.0, rate / 2, -80.0, 0.0)
    inner = seen(picture)[:, 20:-20]  # its ends are clicks
    expected = HEIGHT * (1 - share)
    assert np.abs(inner.argmax(axis=0) + 0.5 - expected).max() <= 1.5
    assert inner.max(axis=0).min() >= 255 * (80 - 1.5) / 80  # a window catches a tone between two bins 1.4 dB lower
    assert np.median(inner) == 0


def test_it_is_what_librosa_computes() -> None:
    rate, hop = 15000, 100  # 480 samples of window and 640 hops: a bin a row and a frame a column
    time = np.arange(WIDTH * hop) / rate
    sweep = 0.3 * np.sin(2 * np.pi * (200 + 700 * time) * time) + np.random.default_rng(1).normal(0, 0.01, len(time))
    (picture,), axes = draw([Audio(sweep.astype(np.float32)[:, None], rate)])
    plane = np.abs(librosa.stft(sweep, n_fft=480, hop_length=hop, window="hann", center=True)) * 2 / 240
    plane[-2] = np.maximum(plane[-2], plane[-1])  # the bin at half the rate has no row of its own
    expected = np.clip(20 * np.log10(plane[:HEIGHT, :WIDTH][::-1]), axes.db_min, axes.db_max)
    assert np.abs(decibels(picture, axes) - expected).max() <= HALF_STEP_DB + 80 / 255
    assert axes.db_max - 10 < expected.max() <= axes.db_max


def test_all_clips_stand_on_one_scale() -> None:
    loud, quiet = tone(3000), tone(3000, level=0.1)
    (first, second), axes = draw([loud, quiet])
    apart = decibels(first, axes).max() - decibels(second, axes).max()
    assert apart == pytest.approx(20, abs=2 * HALF_STEP_DB)


def test_a_shorter_clip_of_a_lower_rate_fills_its_own_part() -> None:
    (whole, part), axes = draw([tone(3000, 16000, 2.0), tone(1500, 8000, 1.0)])
    assert axes[:2] == (2.0, 8000.0)
    assert np.abs(seen(part)[:, 10:300].argmax(axis=0) + 0.5 - HEIGHT * (1 - 1500 / 8000)).max() <= 1.5
    assert not seen(part)[:, 325:].any()
    assert not seen(part)[: HEIGHT // 2 - 1].any()
    assert seen(whole)[:, 325:].any()


def test_channels_are_averaged_by_power() -> None:
    left = tone(3000)
    both = Audio(np.hstack([left.samples, -left.samples]), left.rate)
    one = Audio(np.hstack([left.samples, 0 * left.samples]), left.rate)
    (alone, opposed, half), axes = draw([left, both, one])
    assert (seen(alone) == seen(opposed)).mean() > 0.99
    assert decibels(alone, axes).max() - decibels(half, axes).max() == pytest.approx(3, abs=2 * HALF_STEP_DB)


def test_a_hole_is_seen_where_it_is() -> None:
    noise = np.random.default_rng(2).normal(0, 0.1, (32000, 1)).astype(np.float32)
    cut = noise.copy()
    cut[8000:16000] = 0
    (before, after), _ = draw([Audio(noise, 16000), Audio(cut, 16000)])
    assert not seen(after)[:, 170:310].any()
    assert (seen(after)[:, 340:] == seen(before)[:, 340:]).all()
    assert np.median(seen(before)[:, 170:310]) > 100


@pytest.mark.parametrize("frames", [1, 3, 100, 700])
@pytest.mark.parametrize("rate", [1, 50, 16000, 192_000])
def test_the_shortest_clips_are_drawn(frames: int, rate: int) -> None:
    pictures, axes = draw([Audio(np.full((frames, 2), 0.5, np.float32), rate), Audio(np.zeros((0, 1), np.float32), 8)])
    assert axes.seconds == min(30, frames / rate)
    assert seen(pictures[0]).any()
    assert not seen(pictures[1]).any()


def test_of_a_long_clip_the_beginning_is_drawn() -> None:
    _, axes = draw([tone(100, 1000, 40.0)])
    assert axes.seconds == 30.0
    _, axes = draw([Audio(np.zeros((400_000, 5), np.float32), 48000)])
    assert axes.seconds == pytest.approx(200_000 / 48000)


def test_silence_and_nothing() -> None:
    (picture,), axes = draw([Audio(np.zeros((1000, 1), np.float32), 16000)])
    assert axes[2:] == (-80.0, 0.0)
    assert not seen(picture).any()
    with pytest.raises(ValueError, match="no clip holds a sample"):
        draw([Audio(np.zeros((0, 1), np.float32), 16000)])
