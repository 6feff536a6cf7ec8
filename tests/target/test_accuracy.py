"""The shipped weights read what they must: held-out codes, Pillow's font, the clips that the load ships."""

import random
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.target import model as shipped
from training.batches import Examples, draw_examples, log_mels
from training.evaluate import cut, cut_padding, held_out_padding
from training.exact_match import Edit, hits
from training.pictures import PILLOW_FONT
from training.prompts import TASKS
from training.speech import SpeechBank

pytestmark = pytest.mark.model
COUNT = 240
CLIPS = Path(str(resources.files("chaos_mm.load") / "clips"))
VOICES = ("en-us", "en-us_f2", "en-gb_m3", "joe_6")


@cache
def examples() -> Examples:
    """A fixed set: codes never trained on, one of the load's voices each, Pillow's font, several sizes."""
    bank = SpeechBank.from_folder(CLIPS)
    sizes = ((192, 128), (96, 64), (320, 240), (640, 480))
    parts = [
        draw_examples(random.Random(i), bank, COUNT // 4, True, voice, (PILLOW_FONT,), size)
        for i, (voice, size) in enumerate(zip(VOICES, sizes, strict=True))
    ]
    return Examples(*(sum((list(part[field]) for part in parts), []) for field in range(3)))


@cache
def planes() -> tuple[Any, Any]:
    """The examples' pixels and log-mel planes."""
    return examples().pixels(), log_mels(examples().samples())


def share(model: Any, task: str, edit: Edit | None = None, every: int = 1) -> float:
    """Exact match on each ``every``-th example."""
    few = Examples(*(part[::every] for part in examples()))
    pixels, mels = (plane[::every] for plane in planes())
    right = hits(model, few, task, all_media=True, edit=edit, pixels=pixels, mels=mels)
    return sum(right) / len(right)


def test_weights_are_small_and_the_ones_that_were_shipped(tmp_path: Path) -> None:
    assert shipped.WEIGHTS_FILE.stat().st_size <= 8_000_000
    assert shipped.sha256_of(shipped.WEIGHTS_FILE) == shipped.shipped_digest()
    other = tmp_path / "other.safetensors"
    other.write_bytes(shipped.WEIGHTS_FILE.read_bytes()[:-1] + b"\0")
    with pytest.raises(shipped.BadWeights, match="SHA-256"):
        shipped.load(other)


@pytest.mark.parametrize(
    ("task", "floor"), [("image", 0.99), ("colour", 0.99), ("text", 0.99), ("audio", 0.97), ("agreement", 0.97)]
)
def test_exact_match_on_codes_never_trained_on(model: Any, task: str, floor: float) -> None:
    assert share(model, task) >= floor


@pytest.mark.parametrize("task", TASKS)
def test_padding_pairs_never_trained_on_change_nothing(model: Any, task: str) -> None:
    assert share(model, task, held_out_padding, every=3) >= 0.96


@pytest.mark.parametrize("end", ["head", "tail", "both"])
def test_cutting_the_question_hurts_more_the_more_is_cut(model: Any, end: str) -> None:
    """Over all tasks together, 60 scenes each."""
    curve = [
        sum(share(model, t, partial(cut, dose, end), every=4) for t in TASKS) / 5 for dose in (0.0, 0.15, 0.3, 0.5)
    ]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] >= 0.98 and curve[3] <= 0.6


def test_cutting_as_much_padding_does_nothing(model: Any) -> None:
    for dose in (0.0, 0.5):
        assert sum(share(model, t, partial(cut_padding, dose), every=4) for t in TASKS) / 5 >= 0.98


@pytest.mark.parametrize("task", TASKS)
def test_without_a_question_there_is_no_answer(model: Any, task: str) -> None:
    assert share(model, task, lambda rng, words: [], every=4) == 0.0
