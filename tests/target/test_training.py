"""The training material: a frozen split, pure batches, right answers, labels where the digits are."""

import hashlib
import random
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from chaos_mm.target import questions, tokens
from training import codes, pictures, prompts
from training.speech import SpeechBank

pytestmark = pytest.mark.model
CLIPS = Path(str(resources.files("chaos_mm.load") / "clips"))


@pytest.fixture(scope="module")
def bank() -> SpeechBank:
    return SpeechBank.from_folder(CLIPS)


def test_the_held_out_codes_are_frozen() -> None:
    held = [n for n in range(10_000) if codes.is_held_out(tuple(map(int, f"{n:04d}")))]  # type: ignore[arg-type]
    assert len(held) == 1001
    assert hashlib.sha256(repr(held).encode()).hexdigest()[:16] == "4bda793e1420cdb0"


def test_draws_keep_to_their_side() -> None:
    rng = random.Random(0)
    for held_out in (False, True):
        for _ in range(300):
            code = codes.draw_code(rng, held_out)
            other = codes.draw_other(rng, code, held_out)
            assert codes.is_held_out(code) == codes.is_held_out(other) == held_out and code != other


def test_held_out_padding_is_a_tenth() -> None:
    count = len(questions.PADDING)
    held = sum(prompts.padding_is_held_out(a, b) for a in range(count) for b in range(count))
    assert held / count**2 == pytest.approx(0.1, abs=0.02)


SCENE = prompts.Scene((4, 0, 7, 2), 1, (4, 0, 7, 3), (9, 3, 1, 5))


@pytest.mark.parametrize(
    ("text", "image", "audio", "right"),
    [
        ("what number is in the picture", True, True, "4072"),
        ("what number is in the picture", False, True, "unknown"),
        ("what colour is the number in the picture", True, False, "green"),
        ("what number is in the audio", False, True, "4073"),
        ("what number is in the audio", True, False, "unknown"),
        ("does the voice say the same number as the image shows", True, True, "no"),
        ("repeat the code 9 3 1", False, False, "931"),
        ("tea tastes better", True, True, "unknown"),
    ],
)
def test_right_answers(text: str, image: bool, audio: bool, right: str) -> None:
    made = prompts.make_prompt(text.split(), SCENE, image, audio)
    assert made.answer[-1] == tokens.EOS and tokens.answer_text(made.answer[:-1]) == right


def test_prompts_vary_fit_and_are_reproducible() -> None:
    made = [prompts.training_prompt(random.Random(i), task, SCENE, 1.0) for i in range(400) for task in prompts.TASKS]
    again = [prompts.training_prompt(random.Random(i), task, SCENE, 1.0) for i in range(400) for task in prompts.TASKS]
    assert made == again
    assert max(len(p.ids) for p in made) < 200
    unknown = sum(tokens.answer_text(p.answer[:-1]) == "unknown" for p in made) / len(made)
    assert 0.1 < unknown < 0.35
    assert sum(tokens.UNK in p.ids for p in made) > 100


@pytest.mark.parametrize("size", [(96, 64), (192, 128), (256, 256), (640, 480), (320, 107)])
def test_labels_lie_where_the_digits_are(size: tuple[int, int]) -> None:
    for seed in range(20):
        drawn = pictures.draw_picture(random.Random(seed), (4, 0, 7, 2), (pictures.PILLOW_FONT,), size)
        assert drawn.pixels.shape == (64, 96, 3)
        slots = drawn.slots.reshape(8, 12)
        assert sorted(set(drawn.slots.tolist())) == [0, 1, 2, 3, 4]
        assert all(
            drawn.digits[drawn.slots == slot].tolist().count(digit + 1) for slot, digit in enumerate((4, 0, 7, 2), 1)
        )
        columns = [np.where((slots == slot).any(0))[0].mean() for slot in (1, 2, 3, 4)]
        assert columns == sorted(columns)
        cells = drawn.pixels.reshape(8, 8, 12, 8, 3).astype(float).std((1, 3)).sum(-1)
        assert cells[slots > 0].mean() > 2 * cells[slots == 0].mean()


def test_speech_fits_and_labels_follow_the_sound(bank: SpeechBank) -> None:
    for seed in range(20):
        spoken = bank.speak(random.Random(seed), (1, 2, 3, 4), "joe_6")
        assert spoken.samples.shape == (40_960,)
        order = [slot for slot in spoken.slots.tolist() if slot]
        assert order == sorted(order) and set(order) == {1, 2, 3, 4}
        loud = np.abs(spoken.samples).reshape(80, 512).max(1)
        assert loud[spoken.slots > 0].mean() > 5 * loud[spoken.slots == 0].mean()


def test_the_evaluation_voices_are_not_trained_on() -> None:
    import_names = {
        v: [[np.zeros(1)] for _ in range(10)] for v in ("en-us", "en-gb+f4", "joe#1", "joe#6", "joe#7", "en-us+f2")
    }
    bank = SpeechBank(import_names)
    assert bank.voices["train"] == ["en-us", "joe#1", "en-us+f2"]
    rng = random.Random(0)
    assert not {bank.choose_voice(rng, "train") for _ in range(500)} & {"en-gb+f4", "joe#6", "joe#7"}


def test_wilson_interval_is_the_published_one() -> None:
    """Brown, Cai, DasGupta 2001: for 0 of n the upper end is z^2 / (n + z^2)."""
    from training.exact_match import wilson

    assert wilson(0, 100) == pytest.approx((0.0, 1.96**2 / (100 + 1.96**2)))
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
