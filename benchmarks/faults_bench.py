"""The faults against the known libraries, on one thread: process CPU time, interleaved, medians.

``python -m benchmarks.faults_bench [--rounds N]`` prints a table and whether each goal is met. Every round runs every
contender once, in turn, so that a busy machine slows all alike; nothing is shared between two calls of ours, which are
two requests. The statistics contract of image_noise is checked on the very pictures that were timed.
Peers that are not installed are named as missing, and their goal as not measured.
"""

import argparse
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from chaos_mm.core import tokenize
from chaos_mm.core.media import Audio, Image
from chaos_mm.core.rng import Rng
from chaos_mm.faults import get

SIGMA, SHARE, RATE, SECONDS = 0.05, 0.4, 16000, 10
Call = Callable[[int], Any]
"""One timed call; the argument is the number of the request."""


@dataclass
class Contest:
    """Ours first, then the peers; the goal is the least ratio of the fastest peer that counts to ours."""

    title: str
    ours: Call
    peers: dict[str, Call]
    goal: float = 0.0
    missing: list[str] = field(default_factory=list)
    check: Callable[[Any], list[str]] = lambda made: []
    summary: Callable[[], str] = lambda: ""


def main(argv: list[str] | None = None) -> int:
    """Run every contest; 1 when what was timed broke its statistics contract, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args(argv).rounds
    warnings.simplefilter("ignore")
    threadpoolctl = _peer("threadpoolctl", [])
    if threadpoolctl is not None:  # CPU time counts every thread: this keeps peers from paying for idle ones
        threadpoolctl.threadpool_limits(1)
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network for its newest version
    print(f"faults: process CPU ms, one thread, median of {rounds} interleaved rounds; {_versions()}\n")
    print(f"{'':58}{'ms':>9}{'times ours':>12}")
    broken = [line for contest in (_noise(), *_masks(), _truncation()) for line in _run(contest, rounds)]
    for line in broken:
        print(f"BROKEN CONTRACT: {line}")
    return 1 if broken else 0


def _run(contest: Contest, rounds: int) -> list[str]:
    calls = {"chaos_mm": contest.ours, **contest.peers}
    for call in calls.values():
        call(-1)  # tables, plans and caches
    spent: dict[str, list[float]] = {name: [] for name in calls}
    broken = []
    for request in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            result = call(request)
            spent[name].append(time.process_time() - start)
            if name == "chaos_mm":
                broken += contest.check(result)
            del result  # a kept result would make the next call ask the kernel for new pages
    _report(contest, {name: float(np.median(times)) * 1e3 for name, times in spent.items()})
    return broken


def _report(contest: Contest, medians: dict[str, float]) -> None:
    ours = medians.pop("chaos_mm")
    print(f"{contest.title:58}{ours:9.3f}")
    for name, median in medians.items():
        print(f"    {name:54}{median:9.3f}{median / ours:11.1f}x")
    for name in contest.missing:
        print(f"    {name:54}{'not installed':>21}")
    if contest.goal and medians:
        ratio = min(medians.values()) / ours
        print(f"    goal {contest.goal:g}x the fastest: {'met' if ratio >= contest.goal else 'NOT MET'} ({ratio:.1f}x)")
    elif contest.goal:
        print(f"    goal {contest.goal:g}x: not measured")
    print(contest.summary())


def _rng(fault: str, request: int) -> Rng:
    return Rng.derive(1, f"bench-{request}", "0", fault)


def _noise() -> Contest:
    """Fresh noise on 1024 x 1024 RGB; the picture stays away from black and white, so that sigma can be measured."""
    picture = np.random.default_rng(1).integers(80, 176, (1024, 1024, 3), dtype=np.uint8)
    image, fault, generator = Image(picture, "RGB"), get("image_noise"), np.random.default_rng(2)
    peers: dict[str, Call] = {}
    missing: list[str] = []
    albumentations = _peer("albumentations", missing)
    if albumentations is not None:
        import_module("cv2").setNumThreads(1)
        theirs = albumentations.GaussNoise(std_range=(SIGMA, SIGMA), p=1)
        peers["albumentations GaussNoise"] = lambda _: theirs(image=picture)["image"]
    goal = 10 if peers else 0
    peers["numpy: float32 normals, add, round, clip"] = lambda _: _numpy_noise(picture, generator)
    contract = _NoiseContract(picture)
    return Contest(
        f"image_noise, sigma {SIGMA}, 1024 x 1024 RGB, fresh each request",
        lambda request: fault(image, _rng("image_noise", request), sigma=SIGMA),
        peers,
        goal,
        missing,
        contract.check,
        contract.summary,
    )


class _NoiseContract:
    """Mean within 3 standard errors, sigma within 5 %, no two requests alike: held against every timed picture."""

    wanted = math.sqrt((SIGMA * 255) ** 2 + 1 / 12)

    def __init__(self, picture: Any) -> None:
        self.picture, self.before = picture, None
        self.means: list[float] = []
        self.sigmas: list[float] = []

    def check(self, made: Any) -> list[str]:
        """A line for each promise that this picture breaks."""
        noise = made.value.pixels.astype(np.int16)
        noise -= self.picture
        mean, sigma, number = float(noise.mean()), float(noise.std()), len(self.means)
        self.means.append(mean)
        self.sigmas.append(sigma)
        alike = 0.0 if self.before is None else float(np.mean(noise[:64] * self.before)) / sigma**2
        self.before = noise[:64].copy()
        size = noise.size
        return [
            *([f"request {number}: mean {mean:.4f}"] if abs(mean) > 4.5 * sigma / math.sqrt(size) else []),
            *(
                [f"request {number}: sigma {sigma:.3f}, not {self.wanted:.3f}"]
                if abs(sigma / self.wanted - 1) > 0.05
                else []
            ),
            *([f"request {number}: like the one before ({alike:.3f})"] if abs(alike) > 0.02 else []),
        ]

    def summary(self) -> str:
        """The figures over all timed pictures, the mean in standard errors."""
        error = self.wanted / math.sqrt(self.picture.size)
        within = sum(abs(mean) <= 3 * error for mean in self.means)
        return (
            f"    on these {len(self.means)} pictures: mean within 3 standard errors {within} times, "
            f"sigma {min(self.sigmas):.3f} to {max(self.sigmas):.3f} of {self.wanted:.3f} steps\n"
        )


def _numpy_noise(picture: Any, generator: Any) -> Any:
    noise = generator.standard_normal(picture.shape, dtype=np.float32)
    noise *= SIGMA * 255
    noise += picture
    return np.clip(np.rint(noise, out=noise), 0, 255, out=noise).astype(np.uint8)


def _masks() -> list[Contest]:
    """A hole of 40 % of the plane of 10 s at 16 kHz: the same hole by the full transform of librosa and scipy."""
    time_axis = np.arange(RATE * SECONDS) / RATE
    pitch = np.cumsum(120 + 40 * np.sin(2 * np.pi * 0.7 * time_axis)) / RATE
    voiced = sum(np.sin(2 * np.pi * k * pitch) / k for k in range(1, 30)) * (np.sin(2 * np.pi * 2 * time_axis) > -0.3)
    samples = (0.1 * voiced + np.random.default_rng(3).normal(0, 1e-3, len(time_axis))).astype(np.float32)
    return [_mask(samples, region) for region in ("block", "frequency", "time")]


def _mask(samples: Any, region: str) -> Contest:
    clip, fault = Audio(samples.reshape(-1, 1), RATE), get("audio_spectral_mask")
    side = {"block": math.sqrt(SHARE), "time": SHARE, "frequency": 1.0}[region]
    wide, tall = round(1251 * side), round(257 * {"block": math.sqrt(SHARE), "time": 1.0}.get(region, SHARE))
    hole = (slice(20, 20 + tall) if tall < 257 else slice(None), slice(200, 200 + wide) if wide < 1251 else slice(None))
    missing: list[str] = []
    peers: dict[str, Call] = {}
    librosa, scipy_signal = _peer("librosa", missing), import_module("scipy.signal")
    if librosa is not None:
        peers["librosa stft, zero, istft (512/128)"] = lambda _: _librosa_mask(librosa, samples, hole)
    if region == "block":
        peers["scipy.signal stft, zero, istft (512/128)"] = lambda _: _scipy_mask(scipy_signal, samples, hole)
    peers.update(_nearest(region, samples, missing))
    return Contest(
        f"audio_spectral_mask, {region}, share {SHARE}, 10 s at 16 kHz",
        lambda request: fault(clip, _rng("audio_spectral_mask", request), share=SHARE, region=region),
        peers,
        4 if region == "block" and librosa is not None else 0,
        missing,
    )


def _nearest(region: str, samples: Any, missing: list[str]) -> dict[str, Call]:
    """What audiomentations has that comes nearest; it has no spectral mask of a signal, so these do less."""
    if region == "block":
        return {}
    audiomentations = _peer("audiomentations", missing)
    if audiomentations is None:
        return {}
    if region == "time":
        mask = audiomentations.TimeMask(min_band_part=SHARE, max_band_part=SHARE, p=1)
        return {"audiomentations TimeMask (zeroes samples, no transform)": lambda _: mask(samples, RATE)}
    stop = audiomentations.BandStopFilter(
        min_center_freq=3000, max_center_freq=3000, min_bandwidth_fraction=1, max_bandwidth_fraction=1, p=1
    )
    return {"audiomentations BandStopFilter (slopes, no hole)": lambda _: stop(samples, RATE)}


def _librosa_mask(librosa: Any, samples: Any, hole: Any) -> Any:
    spectrum = librosa.stft(samples, n_fft=512, hop_length=128)
    spectrum[hole] = 0
    return librosa.istft(spectrum, hop_length=128, n_fft=512, length=len(samples))


def _scipy_mask(scipy_signal: Any, samples: Any, hole: Any) -> Any:
    options = {"window": "hann", "nperseg": 512, "noverlap": 384}
    spectrum = scipy_signal.stft(samples, **options)[2]
    spectrum[hole] = 0
    return scipy_signal.istft(spectrum, **options)[1][: len(samples)]


def _truncation() -> Contest:
    """30 % off a prompt of some 18,000 characters, by words, and by a byte-level BPE as tokenizers' offsets do it."""
    words = re.findall(r"\w+", "read the four digits in this picture and say what stands before and after them please")
    text = " ".join(np.random.default_rng(4).choice(words, 4000))
    fault, missing = get("text_token_truncation"), []
    tokenizers = _peer("tokenizers", missing)
    peers: dict[str, Call] = {}
    if tokenizers is not None:
        library = _byte_level(tokenizers, text)
        tokenize.register("bench", lambda: lambda piece: library.encode(piece, add_special_tokens=False).offsets)
        peers["tokenizers encode, slice by offsets"] = lambda _: _library_cut(library, text)
        peers["chaos_mm with that tokenizer"] = lambda request: fault(
            text, _rng("text_token_truncation", request), share=0.3, tokenizer="bench"
        )
    return Contest(
        "text_token_truncation, words, share 0.3, 18,000 characters",
        lambda request: fault(text, _rng("text_token_truncation", request), share=0.3),
        peers,
        missing=missing,
    )


def _byte_level(tokenizers: Any, text: str) -> Any:
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([text], trainer)
    return library


def _library_cut(library: Any, text: str) -> str:
    offsets = library.encode(text, add_special_tokens=False).offsets
    return text[: offsets[len(offsets) - round(0.3 * len(offsets))][0]]


def _peer(name: str, missing: list[str]) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        missing.append(name if error.name in (None, name) else f"{name} (needs {error.name})")
        return None


def _versions() -> str:
    found = []
    for name in ("numpy", "scipy", "stringzilla", "cryptography", "albumentations", "audiomentations", "librosa"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return f"Python {sys.version.split()[0]}, " + ", ".join(found)


if __name__ == "__main__":
    raise SystemExit(main())
