"""Pictures and speech as the model gets them, against closed forms and a second implementation."""

import io

import numpy as np
import pytest
from PIL import Image

from chaos_mm.target import front_end


def test_letterbox_keeps_the_aspect_and_fits() -> None:
    assert front_end.letterbox(192, 128)[1:] == (96, 64, 0, 0)
    assert front_end.letterbox(640, 480)[1:] == (85, 64, 5, 0)
    assert front_end.letterbox(1000, 100)[1:] == (96, 10, 0, 27)
    assert front_end.letterbox(1, 10_000)[1:] == (1, 64, 47, 0)


def test_own_size_passes_unchanged() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    assert np.array_equal(front_end.picture_pixels(Image.fromarray(pixels)), pixels)


def test_bars_take_the_edge_colour() -> None:
    picture = Image.new("RGB", (100, 100), (10, 200, 30))
    picture.paste((250, 0, 0), (30, 30, 70, 70))
    frame = front_end.picture_pixels(picture)
    assert frame.shape == (64, 96, 3) and frame.dtype == np.uint8
    assert (frame[:, :16] == (10, 200, 30)).all() and (frame[:, 80:] == (10, 200, 30)).all()


def test_shrinking_averages() -> None:
    """A checkerboard of single pixels becomes grey: no aliasing."""
    board = np.indices((512, 768)).sum(0) % 2 * 255
    frame = front_end.picture_pixels(Image.fromarray(board.astype(np.uint8)))
    assert abs(frame.astype(int) - 127).max() <= 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B", "F", "I"])
def test_every_mode_gives_a_frame(mode: str) -> None:
    source = Image.new("L", (120, 80), 128)
    picture = Image.fromarray(np.full((80, 120), 32768, np.uint16)) if mode.startswith("I;") else source.convert(mode)
    frame = front_end.picture_pixels(picture)
    assert frame.shape == (64, 96, 3)
    assert mode in {"1", "F", "I"} or abs(int(frame.mean()) - 128) <= 3


def test_transparent_lies_on_white() -> None:
    assert (front_end.picture_pixels(Image.new("RGBA", (96, 64), (0, 0, 0, 0))) == 255).all()


def test_exif_turns_the_picture() -> None:
    picture = Image.new("RGB", (64, 96), "black")
    picture.paste("white", (0, 0, 64, 48))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise to view: the white top becomes the right half
    stream = io.BytesIO()
    picture.save(stream, "PNG", exif=exif)
    frame = front_end.picture_pixels(Image.open(stream))
    assert (frame[:, 50:] == 255).all() and (frame[:, :46] == 0).all()


def reference_log_mel(samples: np.ndarray) -> np.ndarray:
    """By hand: frames, Hann window, DFT, triangles on the HTK mel scale, log, floor."""
    padded = np.zeros(40_960 + 512)
    padded[256 : 256 + len(samples)] = samples
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    power = np.array([np.abs(np.fft.rfft(padded[i * 256 : i * 256 + 512] * window)) ** 2 for i in range(160)]).T
    frequency = np.arange(257) * 16_000 / 512
    edges = 700 * (10 ** (np.linspace(*(2595 * np.log10(1 + np.array([60, 7600]) / 700)), 42) / 2595) - 1)
    up = (frequency[None] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequency[None]) / np.diff(edges)[1:, None]
    level = np.log10(np.maximum(np.maximum(0, np.minimum(up, down)) @ power, 1e-8))
    return (np.maximum(level, level.max() - 6) - level.max() + 3) / 2


def test_log_mel_equals_the_formula() -> None:
    rng = np.random.default_rng(1)
    samples = (rng.normal(size=30_000) * np.linspace(0, 0.3, 30_000)).astype(np.float32)
    plane = front_end.log_mel(samples)
    assert plane.shape == (40, 160) and plane.dtype == np.float32
    np.testing.assert_allclose(plane, reference_log_mel(samples), atol=1e-4)


def test_silence_sits_at_the_floor_of_loud_speech() -> None:
    samples = np.zeros(20_000, np.float32)
    samples[:8000] = np.sin(np.arange(8000) * 0.3)
    plane = front_end.log_mel(samples)
    assert plane.max() == pytest.approx(1.5)
    assert (plane[:, 40:] == front_end.MEL_FLOOR).all()
