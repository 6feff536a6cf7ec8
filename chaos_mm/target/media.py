"""From the bytes of a request to what the model takes: pictures and speech, decoded with every limit checked first."""

import base64
import binascii
import io
import math
import re
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from chaos_mm.target.front_end import SAMPLE_RATE, WINDOW_SAMPLES, WINDOW_SECONDS, log_mel, picture_pixels
from chaos_mm.target.refusal import Refusal

PICTURE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
SPEECH_FORMATS = ("wav", "mp3", "flac", "ogg")
MAX_PICTURE_PIXELS = 40_000_000
MAX_SPEECH_SECONDS = 60.0  # decoded at most; what is longer is refused from its header
RATES_HZ = (4_000, 192_000)
SILENCE = 1e-3  # of the peak: what may be cut from the ends of speech that is longer than the window
_DATA_URI = re.compile(r"data:image/[a-zA-Z0-9.+-]+;base64,(.*)", re.DOTALL)


def picture_bytes(url: str) -> bytes:
    """The bytes of a picture's data URI. Raises Refusal for any other URL and for broken base64."""
    match = _DATA_URI.fullmatch(url)
    if match is None:
        raise Refusal(
            "image_url is not a data URI 'data:image/...;base64,...': this server fetches nothing", 400, "image_url"
        )
    return decode_base64(match[1], "image_url")


def decode_base64(text: str, param: str) -> bytes:
    """Strict base64. Raises Refusal naming ``param``."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(f"{param} is not valid base64: {error}", 400, param) from error


def read_picture(data: bytes) -> Any:
    """Pixels uint8 (64, 96, 3) of a JPEG, PNG, WebP or GIF file. Raises Refusal when it is none, broken, too large."""
    try:
        picture = Image.open(io.BytesIO(data), formats=PICTURE_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large("that many") from error
    except Exception as error:  # decoders raise whatever they like on hostile bytes
        raise Refusal("cannot read image: not a JPEG, PNG, WebP or GIF file, or broken", 400, "image_url") from error
    if picture.width * picture.height > MAX_PICTURE_PIXELS:
        raise _too_large(f"{picture.width}x{picture.height}")
    try:
        picture.draft("RGB", (384, 256))
        return picture_pixels(picture)
    except Exception as error:
        raise Refusal(f"cannot decode image: broken {picture.format} file", 400, "image_url") from error


def _too_large(size: str) -> Refusal:
    return Refusal(f"image has {size} pixels; at most {MAX_PICTURE_PIXELS:,} in all are read", 400, "image_url")


def read_speech(data: bytes) -> Any:
    """Log-mel plane float32 (40, 160) of a sound file of any rate and channel count.

    Raises Refusal when it is broken, silent through lack of samples, or longer than the window of 2.56 s even
    after silence is cut from its ends.
    """
    return log_mel(fit_window(read_samples(data)))


def read_samples(data: bytes) -> Any:
    """Mono samples float32 (n,) at 16 kHz, finite and within +-1."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            rate, seconds = sound.samplerate, sound.frames / max(1, sound.samplerate)
            samples = sound.read(dtype="float32", always_2d=True) if seconds <= MAX_SPEECH_SECONDS else None
    except Exception as error:
        allowed = ", ".join(SPEECH_FORMATS)
        raise Refusal(f"cannot read audio: not a sound file of {allowed}, or broken", 400, "input_audio") from error
    if not RATES_HZ[0] <= rate <= RATES_HZ[1]:
        raise Refusal(f"audio has {rate} Hz; allowed: {RATES_HZ[0]}-{RATES_HZ[1]}", 400, "input_audio")
    if samples is None:
        raise _too_long(seconds)
    if not len(samples):
        raise Refusal("audio holds no samples", 400, "input_audio")
    mono = np.nan_to_num(samples.mean(1), nan=0.0, posinf=1.0, neginf=-1.0)
    mono = mono / max(1.0, float(np.abs(mono).max()))
    return mono if rate == SAMPLE_RATE else _resample(mono, rate)


def _resample(samples: Any, rate: int) -> Any:
    import librosa

    return librosa.resample(samples, orig_sr=rate, target_sr=SAMPLE_RATE)  # soxr, high quality


def fit_window(samples: Any) -> Any:
    """``samples`` if they fit the window, else without silence at their ends. Raises Refusal if they still do not."""
    if len(samples) <= WINDOW_SAMPLES:
        return samples
    loud = np.flatnonzero(np.abs(samples) > SILENCE * np.abs(samples).max())
    first, last = (int(loud[0]), int(loud[-1]) + 1) if len(loud) else (0, 0)
    if last - first > WINDOW_SAMPLES:
        raise _too_long(len(samples) / SAMPLE_RATE)
    first = max(0, last - WINDOW_SAMPLES)
    return samples[first : first + WINDOW_SAMPLES]


def _too_long(seconds: float) -> Refusal:
    shown = math.ceil(seconds * 100) / 100
    return Refusal(f"audio is {shown:.2f} s long; this model hears at most {WINDOW_SECONDS} s", 400, "input_audio")
