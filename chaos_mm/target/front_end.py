"""What the demo model sees and hears: pictures letterboxed to 96x64, speech as a 40 x 160 log-mel plane (librosa)."""

from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageOps

WIDTH, HEIGHT = 96, 64
SAMPLE_RATE = 16_000
WINDOW_SAMPLES = 40_960
WINDOW_SECONDS = WINDOW_SAMPLES / SAMPLE_RATE
FFT_SAMPLES, HOP_SAMPLES = 512, 256
MELS, FRAMES = 40, 160
MEL_FLOOR = -1.5


def letterbox(width: int, height: int) -> tuple[float, int, int, int, int]:
    """(scale, new width, new height, left, top) that fit a picture of ``width`` x ``height`` pixels into 96 x 64."""
    scale = min(WIDTH / width, HEIGHT / height)
    new_width, new_height = max(1, min(WIDTH, round(width * scale))), max(1, min(HEIGHT, round(height * scale)))
    return scale, new_width, new_height, (WIDTH - new_width) // 2, (HEIGHT - new_height) // 2


def picture_pixels(picture: Image.Image) -> Any:
    """Pixels of any Pillow image, uint8 (64, 96, 3): upright by EXIF, alpha on white, antialiased, letterboxed.

    The bars take the mean colour of the picture's own edge, so that they do not stand out.
    """
    rgb = _rgb(ImageOps.exif_transpose(picture))
    _, width, height, left, top = letterbox(*rgb.size)
    pixels = np.asarray(rgb if rgb.size == (width, height) else rgb.resize((width, height), Image.Resampling.BILINEAR))
    if (width, height) == (WIDTH, HEIGHT):
        return pixels
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).mean(0)
    canvas = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    canvas[:] = np.round(edge)
    canvas[top : top + height, left : left + width] = pixels
    return canvas


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):
        picture = Image.fromarray((np.asarray(picture).astype(np.uint16) >> 8).astype(np.uint8))
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return picture.convert("RGB")


@cache
def mel_filters() -> Any:
    """Triangular filters on the HTK mel scale, float32 (40, 257), 60-7600 Hz, from ``librosa.filters.mel``."""
    from librosa.filters import mel

    return mel(
        sr=SAMPLE_RATE, n_fft=FFT_SAMPLES, n_mels=MELS, fmin=60, fmax=7600, htk=True, norm=None, dtype=np.float32
    )


def log_mel(samples: Any) -> Any:
    """Log-mel plane, float32 (40, 160), of ``samples`` float32 (n,) at 16 kHz, n <= 40,960; the rest is silence.

    Normalised as Whisper does: log10, floor 6 decades under the loudest cell, then (x - max + 3) / 2.
    """
    import librosa

    padded = np.zeros(WINDOW_SAMPLES, np.float32)
    padded[: len(samples)] = samples
    spectrum = librosa.stft(padded, n_fft=FFT_SAMPLES, hop_length=HOP_SAMPLES, window="hann", pad_mode="constant")
    power = np.abs(spectrum[:, :FRAMES]) ** 2
    level = np.log10(np.maximum(mel_filters() @ power, 1e-8))
    return ((np.maximum(level, level.max() - 6) - level.max() + 3) / 2).astype(np.float32)
