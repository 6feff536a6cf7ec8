"""Spoken codes from the clip bank: four digits of one voice with short gaps, after an optional lead-in of silence."""

import io
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt
import soundfile

from chaos_mm.core.errors import BadRequest
from chaos_mm.core.rng import Rng

RATE = 16_000
VOICES = ("en-us", "en-us_f2", "en-gb_m3", "joe_6")
FORMATS = ("wav", "flac", "mp3")
GAP_SECONDS = (0.03, 0.10)
DEMO_WINDOW_SECONDS = 2.56  # what the demo target hears
_GAIN_DB = (-10.0, 1.0)

Samples = npt.NDArray[np.float32]


def speak(code: str, voice: str, rng: Rng, *, lead_in_seconds: float = 0.0, window_seconds: float = 0.0) -> Samples:
    """Mono float32 samples at 16 kHz within ±1 of a voice that says ``code``.

    ``lead_in_seconds`` of silence come first (recognisers lose a first digit without; 0.6 s cures whisper). With
    ``window_seconds`` the whole fits that length and starts at a random place in what is left of it; raises BadRequest
    naming both lengths when it cannot.
    """
    clips = [_clip(voice, digit) * np.float32(rng.uniform(0.85, 1.15)) for digit in code]
    gaps = [round(RATE * rng.uniform(*GAP_SECONDS)) for _ in clips[1:]]
    lead_in = round(RATE * lead_in_seconds)
    length = lead_in + sum(map(len, clips)) + sum(gaps)
    window = round(RATE * window_seconds)
    if window and length > window:
        raise BadRequest(f"speech of {length / RATE:.2f} s does not fit the window of {window_seconds} s")
    start = lead_in + (rng.integer(0, min(window - length, RATE) + 1) if window else 0)
    out = np.zeros(start + length - lead_in, np.float32)
    for clip, gap in zip(clips, [*gaps, 0], strict=True):
        out[start : start + len(clip)] = clip
        start += len(clip) + gap
    gain = np.float32(10 ** (rng.uniform(*_GAIN_DB) / 20))
    return np.asarray(np.clip(out * gain, -1.0, 1.0), np.float32)


def encode(samples: Samples, file_format: str) -> bytes:
    """The samples as a 16-bit WAV or FLAC file, or an MP3. Raises BadRequest on another format."""
    if file_format not in FORMATS:
        raise BadRequest(f"speech format is {file_format!r}; allowed: {', '.join(FORMATS)}")
    out = io.BytesIO()
    subtype = "MPEG_LAYER_III" if file_format == "mp3" else "PCM_16"
    soundfile.write(out, samples, RATE, format=file_format.upper(), subtype=subtype)
    return out.getvalue()


def longest_seconds(lead_in_seconds: float = 0.0) -> float:
    """The longest any code can last, so that a window can be checked before anything is sent."""
    slowest = max(len(_clip(voice, digit)) for voice in VOICES for digit in "0123456789")
    return lead_in_seconds + 4 * slowest / RATE + 3 * GAP_SECONDS[1]


@cache
def _clip(voice: str, digit: str) -> Samples:
    data = resources.files("chaos_mm.load").joinpath("clips", f"{voice}_{digit}.flac").read_bytes()
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    if rate != RATE:
        raise BadRequest(f"clip {voice}_{digit}.flac has {rate} Hz, not {RATE}")
    return np.asarray(samples, np.float32)
