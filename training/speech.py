"""Training speech: four spoken digits of one voice, joined with short silences inside the 2.56 s window."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chaos_mm.target.front_end import HOP_SAMPLES, SAMPLE_RATE, WINDOW_SAMPLES
from training.codes import Code

AUDIO_TOKENS = 80
HELD_OUT_TIMBRE = "+f4"
HELD_OUT_TAKES = ("joe#6", "joe#7")
OFTEN = ("en-us", "en-gb+m3", "en-us+f2")  # the voices whose clips the load ships


class Spoken(NamedTuple):
    """One utterance: samples float32 (40960,) at 16 kHz, digit and slot labels int64 (80,) by audio token."""

    samples: Any
    digits: Any
    slots: Any


class SpeechBank:
    """Digit clips by voice and digit; ``voices`` names the voices of each split: train, timbre, joe."""

    def __init__(self, clips: dict[str, list[list[Any]]]) -> None:
        self.clips = clips
        train = [v for v in clips if not v.endswith(HELD_OUT_TIMBRE) and v not in HELD_OUT_TAKES]
        self.voices = {
            "train": train,
            "joe": [v for v in HELD_OUT_TAKES if v in clips],
            "timbre": [v for v in clips if v.endswith(HELD_OUT_TIMBRE)],
        }
        self._joe = [v for v in train if v.startswith("joe")]
        self._espeak = [v for v in train if not v.startswith("joe")]
        self._often = [v for v in OFTEN if v in clips]

    @classmethod
    def from_bank(cls, path: Path) -> "SpeechBank":
        """Read the file that ``training.speech_bank`` wrote."""
        bank = np.load(path)
        clips: dict[str, list[list[Any]]] = defaultdict(lambda: [[] for _ in range(10)])
        flat, offsets = bank["flat"], bank["offsets"]  # reading a key reads the file
        for i, (voice, digit) in enumerate(zip(bank["voices"], bank["digits"], strict=True)):
            clips[str(voice)][digit].append(flat[offsets[i] : offsets[i + 1]].astype(np.float32) / 32768)
        return cls(dict(clips))

    @classmethod
    def from_folder(cls, folder: Path) -> "SpeechBank":
        """Read 16 kHz clips named ``<voice>_<digit>.flac``."""
        import soundfile

        clips: dict[str, list[list[Any]]] = defaultdict(lambda: [[] for _ in range(10)])
        for path in sorted(folder.glob("*.flac")):
            voice, digit = path.stem.rsplit("_", 1)
            samples, rate = soundfile.read(path, dtype="float32")
            if rate != SAMPLE_RATE:
                raise ValueError(f"{path} has {rate} Hz, {SAMPLE_RATE} are needed")
            clips[voice][int(digit)].append(samples)
        return cls(dict(clips))

    def choose_voice(self, rng: random.Random, split: str) -> str:
        """A voice of the split; in training a fifth joe and a seventh the voices that the load ships."""
        if split != "train" or not self._joe:
            return rng.choice(self.voices.get(split) or [split])
        draw = rng.random()
        return rng.choice(self._joe if draw < 0.2 else self._often if draw < 0.34 else self._espeak)

    def speak(self, rng: random.Random, code: Code, split: str = "train") -> Spoken:
        """Speak ``code`` in a voice of ``split`` (or so named): gaps 30-100 ms, 30 % up to 150 ms, any start."""
        longest = 0.15 if rng.random() < 0.3 else 0.10
        while True:
            voice = self.choose_voice(rng, split)
            clips = [rng.choice(self.clips[voice][digit]) for digit in code]
            gaps = [*(int(SAMPLE_RATE * rng.uniform(0.03, longest)) for _ in range(3)), 0]
            total = sum(map(len, clips)) + sum(gaps)
            if total <= WINDOW_SAMPLES:
                break
            longest = 0.04 + (longest - 0.04) * 0.8
        samples, start = np.zeros(WINDOW_SAMPLES, np.float32), rng.randint(0, WINDOW_SAMPLES - total)
        gain, token = 10 ** rng.uniform(-0.5, 0.1), np.arange(AUDIO_TOKENS) * 2 * HOP_SAMPLES
        digits, slots = np.zeros(AUDIO_TOKENS, np.int64), np.zeros(AUDIO_TOKENS, np.int64)
        for slot, clip in enumerate(clips):
            samples[start : start + len(clip)] = clip * gain * rng.uniform(0.85, 1.15)
            inside = (token >= start - 64) & (token < start + len(clip) + 64)
            digits[inside], slots[inside] = code[slot] + 1, slot + 1
            start += len(clip) + gaps[slot]
        return Spoken(samples, digits, slots)
