"""Exact match on fresh scenes: the share of prompts whose whole answer is right, with Wilson's interval."""

import math
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from chaos_mm.target import questions
from chaos_mm.target.generation import ModelInput, answers
from chaos_mm.target.network import OmniModel
from training.batches import Examples, draw_examples, log_mels
from training.prompts import NEEDS, TASKS, Prompt, Scene, answer, ids_of, make_prompt
from training.speech import SpeechBank

CHUNK = 64
Edit = Callable[[random.Random, list[str]], list[str]]


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share, 95 % by default (Wilson 1927)."""
    share, spread = hits / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return middle - half, middle + half


def clean_prompts(
    scenes: list[Scene], task: str, all_media: bool, edit: Edit | None = None, seed: int = 0
) -> tuple[list[Prompt], list[list[str]]]:
    """One prompt a scene, the wordings in turn, their words edited, and the answers the whole questions deserve."""
    rng, prompts, right = random.Random(seed), [], []
    for i, scene in enumerate(scenes):
        wordings = questions.QUESTIONS[task]
        words = wordings[i % len(wordings)].replace("{}", " ".join(map(str, scene.written))).split()
        image, audio = (need or all_media for need in NEEDS[task])
        right.append(answer(task, words, scene, True, True))
        prompts.append(make_prompt(edit(rng, words) if edit else words, scene, image, audio))
    return prompts, right


def run_prompts(model: OmniModel, prompts: list[Prompt], pixels: torch.Tensor, mels: torch.Tensor) -> list[list[int]]:
    """The model's answers to one prompt a scene."""
    given: list[list[int]] = []
    for start in range(0, len(prompts), CHUNK):
        part = range(start, min(start + CHUNK, len(prompts)))
        given += answers(
            model,
            [
                ModelInput(
                    prompts[i].ids,
                    pixels[i] if prompts[i].has_image else None,
                    mels[i] if prompts[i].has_audio else None,
                )
                for i in part
            ],
        )
    return given


def hits(
    model: OmniModel,
    examples: Examples,
    task: str,
    all_media: bool = False,
    edit: Edit | None = None,
    pixels: torch.Tensor | None = None,
    mels: torch.Tensor | None = None,
) -> list[bool]:
    """Whether each scene's answer is exactly right; ``pixels`` and ``mels`` replace the scenes' own."""
    model.eval()
    prompts, right = clean_prompts(examples.scenes, task, all_media, edit)
    pixels = examples.pixels() if pixels is None else pixels
    mels = log_mels(examples.samples()) if mels is None else mels
    given = run_prompts(model, prompts, pixels, mels)
    return [got == ids_of(words) for got, words in zip(given, right, strict=True)]


@cache
def _validation(bank: Path) -> Examples:
    return draw_examples(random.Random(77), SpeechBank.from_bank(bank), 100, held_out=True, voices="timbre")


def validation_scores(model: OmniModel, bank: Path) -> dict[str, float]:
    """Exact match by task on 100 held-out scenes in the unseen timbre (watched in training, never tested on)."""
    examples = _validation(bank)
    return {task: sum(hits(model, examples, task, all_media=True)) / 100 for task in TASKS}
