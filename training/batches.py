"""Training batches, each a pure function of (seed, step): scenes, questions, pixels, log-mel planes."""

import random
from typing import Any, NamedTuple

import numpy as np
import torch

from chaos_mm.target import front_end
from training import codes, recipe
from training.pictures import Drawn, draw_picture
from training.prompts import TASKS, Prompt, Scene, training_prompt
from training.speech import SpeechBank, Spoken


class Examples(NamedTuple):
    """Scenes with their pictures and speech."""

    scenes: list[Scene]
    pictures: list[Drawn]
    speech: list[Spoken]

    def pixels(self) -> torch.Tensor:
        """Float (n, 3, 64, 96) in 0-1."""
        return torch.from_numpy(np.stack([p.pixels for p in self.pictures])).permute(0, 3, 1, 2).float() / 255

    def samples(self) -> torch.Tensor:
        """Float (n, 40960)."""
        return torch.from_numpy(np.stack([s.samples for s in self.speech]))


def draw_examples(
    rng: random.Random,
    bank: SpeechBank,
    count: int,
    held_out: bool = False,
    voices: str = "train",
    fonts: tuple[str, ...] | None = None,
    size: tuple[int, int] | None = None,
) -> Examples:
    """``count`` scenes from one side of the code split; half of them speak the code that they show."""
    scenes, pictures, speech = [], [], []
    for _ in range(count):
        picture = codes.draw_code(rng, held_out)
        spoken = picture if rng.random() < 0.5 else codes.draw_other(rng, picture, held_out)
        pictures.append(draw_picture(rng, picture, fonts, size))
        speech.append(bank.speak(rng, spoken, voices))
        scenes.append(Scene(picture, pictures[-1].colour, spoken, codes.draw_code(rng, held_out)))
    return Examples(scenes, pictures, speech)


def log_mels(samples: torch.Tensor) -> torch.Tensor:
    """The server's ``log_mel`` for a batch in torch: (n, 40960) to (n, 40, 160)."""
    window = torch.hann_window(front_end.FFT_SAMPLES)
    spectrum = torch.stft(
        samples, front_end.FFT_SAMPLES, front_end.HOP_SAMPLES, window=window, pad_mode="constant", return_complex=True
    )
    power = spectrum[..., : front_end.FRAMES].abs() ** 2
    level = torch.log10((torch.from_numpy(front_end.mel_filters()) @ power).clamp(min=1e-8))
    loudest = level.amax((1, 2), keepdim=True)
    return (torch.maximum(level, loudest - 6) - loudest + 3) / 2


def augment_pixels(pixels: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Brightness +-8 %, Gaussian noise of sigma up to 0.07, a thin bar on a quarter of the pictures."""
    count = len(pixels)
    pixels = pixels * (1 + 0.16 * (torch.rand(count, 1, 1, 1, generator=rng) - 0.5))
    pixels = pixels + torch.randn(pixels.shape, generator=rng) * 0.07 * torch.rand(count, 1, 1, 1, generator=rng)
    for i in torch.where(torch.rand(count, generator=rng) < 0.25)[0].tolist():
        a = torch.rand(6, generator=rng).tolist()
        wide, high = (3 + a[0] * 5, 4 + a[1] * 14) if a[2] < 0.5 else (6 + a[0] * 20, 2 + a[1] * 3)
        x, y = int(a[3] * (front_end.WIDTH - wide)), int(a[4] * (front_end.HEIGHT - high))
        pixels[i, :, y : y + int(high), x : x + int(wide)] = a[5]
    return pixels.clamp(0, 1)


def augment_samples(samples: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """White noise at 5-40 dB SNR on 60 % of the utterances."""
    count = len(samples)
    snr_db = 5 + 35 * torch.rand(count, 1, generator=rng)
    noisy = torch.rand(count, 1, generator=rng) < 0.6
    power = (samples**2).mean(1, keepdim=True)
    return samples + noisy * (power / 10 ** (snr_db / 10)).sqrt() * torch.randn(samples.shape, generator=rng)


def augment_mels(mels: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Half lose up to 4 mel bands and 8 frames; one in ten loses everything above 3.5-7 kHz, as low sample rates do."""
    for i in torch.where(torch.rand(len(mels), generator=rng) < 0.5)[0].tolist():
        a = torch.rand(4, generator=rng).tolist()
        bands, frames = int(a[0] * 5), int(a[2] * 9)
        low, first = int(a[1] * (front_end.MELS - bands)), int(a[3] * (front_end.FRAMES - frames))
        mels[i, low : low + bands] = front_end.MEL_FLOOR
        mels[i, :, first : first + frames] = front_end.MEL_FLOOR
    for i in torch.where(torch.rand(len(mels), generator=rng) < 0.1)[0].tolist():
        mels[i, 27 + int(torch.randint(0, 12, (1,), generator=rng)) :] = front_end.MEL_FLOOR
    return mels


class Batch(NamedTuple):
    """One step's data. ``prompts`` ask about scene ``owners[i]``."""

    pixels: torch.Tensor
    mels: torch.Tensor
    prompts: list[Prompt]
    owners: list[int]
    labels: dict[str, torch.Tensor]


class Batches(torch.utils.data.Dataset[Batch]):
    """The batches of a run of ``steps`` steps; the number of a batch and the seed decide all of it.

    ``fonts`` other than None are all that is used, in place of matplotlib's and Pillow's.
    """

    def __init__(self, bank: SpeechBank, seed: int, steps: int, fonts: tuple[str, ...] | None = None) -> None:
        self.bank, self.seed, self.steps, self.fonts = bank, seed, steps, fonts

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        rng = random.Random(f"{self.seed}/{step}")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        examples = draw_examples(rng, self.bank, recipe.SCENES, fonts=self.fonts)
        prompts, owners = ask(rng, examples.scenes, step / self.steps)
        mels = augment_mels(log_mels(augment_samples(examples.samples(), generator)), generator)
        return Batch(augment_pixels(examples.pixels(), generator), mels, prompts, owners, labels(examples))


def ask(rng: random.Random, scenes: list[Scene], progress: float) -> tuple[list[Prompt], list[int]]:
    """About 2.8 questions a scene, with the index of the scene that each is about."""
    until, rarely = recipe.FEW_AGREEMENT
    share = {**recipe.ASKED, **({"agreement": rarely} if progress < until else {})}
    asked = [(i, task) for i in range(len(scenes)) for task in TASKS if rng.random() < share[task]]
    amount = recipe.damage_amount(progress)
    return [training_prompt(rng, task, scenes[i], amount) for i, task in asked], [i for i, _ in asked]


def labels(examples: Examples) -> dict[str, torch.Tensor]:
    """Targets of the training-only heads."""

    def stack(rows: list[Any]) -> torch.Tensor:
        return torch.from_numpy(np.stack(rows))

    return {
        "picture_digits": stack([p.digits for p in examples.pictures]),
        "picture_slots": stack([p.slots for p in examples.pictures]),
        "speech_digits": stack([s.digits for s in examples.speech]),
        "speech_slots": stack([s.slots for s in examples.speech]),
        "picture": torch.tensor([s.picture for s in examples.scenes]),
        "speech": torch.tensor([s.speech for s in examples.scenes]),
        "colour": torch.tensor([s.colour for s in examples.scenes]),
    }
