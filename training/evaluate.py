"""Measure the shipped weights: ``python -m training.evaluate [count]`` prints the tables of assets/PROVENANCE.md.

Every set holds fresh scenes with codes of the held-out tenth. Needs the speech bank of ``training.speech_bank`` and
matplotlib's fonts; the clips that the load ships are read from the package.
"""

import random
import sys
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch

from chaos_mm.target import model, questions
from chaos_mm.target.network import OmniModel
from training.batches import Examples, draw_examples
from training.exact_match import Edit, hits, wilson
from training.pictures import HELD_OUT_FONTS, PILLOW_FONT
from training.prompts import TASKS, pad, padding_pair, truncate
from training.speech import SpeechBank
from training.train import BANK

SEED = 20_261_130
SIZES = ((96, 64), (192, 128), (256, 256), (320, 180), (640, 480))
DOSES = (0.0, 0.15, 0.30, 0.50)


class Set(NamedTuple):
    """A named set of scenes and the tasks to measure on it."""

    name: str
    examples: Examples
    tasks: tuple[str, ...]
    all_media: bool = True
    edit: Edit | None = None


def held_out_padding(rng: random.Random, words: list[str]) -> list[str]:
    """The question between two padding sentences of a pair never trained on."""
    before, after = padding_pair(rng, held_out=True)
    return questions.PADDING[before].split() + words + questions.PADDING[after].split()


def cut(share: float, end: str, rng: random.Random, words: list[str]) -> list[str]:
    """The question with a share of its words cut."""
    return truncate(words, share, end)


def cut_padding(share: float, rng: random.Random, words: list[str]) -> list[str]:
    """The question behind padding of its own length, from which as many words are cut as ``share`` of the question."""
    words_of_padding = [word for sentence in rng.sample(questions.PADDING, 3) for word in sentence.split()]
    return words_of_padding[round(share * len(words)) : len(words)] + words


def unknown_words(rng: random.Random, words: list[str]) -> list[str]:
    """The question with all sorts of unknown words around it."""
    return pad(rng, ["<unk>"] * rng.randint(1, 4) + words + ["<unk>"] * rng.randint(1, 4), held_out=True)


def clean_sets(count: int, bank: SpeechBank, clips: SpeechBank) -> Iterator[Set]:
    """The sets of the accuracy table."""
    draw = partial(draw_examples, count=count, held_out=True)
    timbre = draw(random.Random(SEED), bank, voices="timbre")
    yield Set("held-out codes, unseen timbre, needed media only", timbre, TASKS, all_media=False)
    yield Set("held-out codes, unseen timbre, both media present", timbre, TASKS)
    yield Set("same, in held-out padding", timbre, TASKS, edit=held_out_padding)
    yield Set("same, with unknown words and padding", timbre, TASKS, edit=unknown_words)
    yield Set("joe, unseen takes", draw(random.Random(SEED + 1), bank, voices="joe"), ("audio", "agreement"))
    for i, voice in enumerate(sorted(clips.clips)):
        yield Set(f"clips {voice}", draw(random.Random(SEED + 2 + i), clips, voices=voice), ("audio", "agreement"))
    unseen = draw(random.Random(SEED + 20), bank, fonts=HELD_OUT_FONTS)
    yield Set("unseen font (STIX)", unseen, ("image", "colour", "agreement"))
    for i, size in enumerate(SIZES):
        examples = draw(random.Random(SEED + 30 + i), bank, fonts=(PILLOW_FONT,), size=size)
        yield Set(f"Pillow's font, {size[0]}x{size[1]}", examples, ("image", "colour"))


def truncation_sets(count: int, bank: SpeechBank) -> Iterator[Set]:
    """The question cut from each end, and padding cut by as many words."""
    examples = draw_examples(random.Random(SEED + 50), bank, count, held_out=True)
    for end in ("head", "tail", "both"):
        for share in DOSES:
            yield Set(f"question cut {share:.0%} {end}", examples, TASKS, edit=partial(cut, share, end))
    for share in DOSES:
        yield Set(f"padding cut by {share:.0%} of the question", examples, TASKS, edit=partial(cut_padding, share))
    yield Set("no question left", examples, TASKS, edit=lambda rng, words: [])


def line(network: OmniModel, measured: Set) -> str:
    """One row of a Markdown table."""
    cells = [measured.name]
    for task in TASKS:
        if task not in measured.tasks:
            cells.append("-")
            continue
        right = hits(network, measured.examples, task, measured.all_media, measured.edit)
        low, high = wilson(sum(right), len(right))
        cells.append(f"{sum(right) / len(right):.3f} ({low:.3f}-{high:.3f})")
    return "| " + " | ".join(cells) + " |"


def main(count: int) -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    network, bank = model.load(), SpeechBank.from_bank(BANK)
    clips = SpeechBank.from_folder(Path(str(files("chaos_mm.load") / "clips")))
    header = f"| set (n = {{}}) | {' | '.join(TASKS)} |\n" + "|---" * (len(TASKS) + 1) + "|"
    print(header.format(count))
    for measured in clean_sets(count, bank, clips):
        print(line(network, measured), flush=True)
    print(header.format(count // 2))
    for measured in truncation_sets(count // 2, bank):
        print(line(network, measured), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
