"""The training run: reproducible batches, every part learns; at length, digits are read well above chance."""

from importlib import resources
from pathlib import Path

import pytest
import torch

from training import recipe
from training.batches import Batches
from training.pictures import PILLOW_FONT
from training.speech import SpeechBank
from training.train import Heads, Trainer, learning_rate, losses

pytestmark = pytest.mark.model
FONTS = (PILLOW_FONT,)


@pytest.fixture(scope="module")
def bank() -> SpeechBank:
    return SpeechBank.from_folder(Path(str(resources.files("chaos_mm.load") / "clips")))


def test_a_batch_depends_on_seed_and_step_alone(bank: SpeechBank) -> None:
    first, again, other = (
        Batches(bank, 5, 100, FONTS)[40],
        Batches(bank, 5, 100, FONTS)[40],
        Batches(bank, 5, 100, FONTS)[41],
    )
    assert torch.equal(first.pixels, again.pixels) and torch.equal(first.mels, again.mels)
    assert first.prompts == again.prompts and first.owners == again.owners
    assert not torch.equal(first.pixels, other.pixels) and first.prompts != other.prompts
    assert first.pixels.shape == (32, 3, 64, 96) and first.mels.shape == (32, 40, 160)
    assert first.pixels.min() >= 0 and first.pixels.max() <= 1


def test_one_step_reaches_every_parameter(bank: SpeechBank) -> None:
    torch.manual_seed(0)
    trainer = Trainer()
    batch = Batches(bank, 0, 100, FONTS)[60]
    parts = losses(trainer.model.train(), trainer.heads, batch)
    assert set(parts) == set(recipe.LOSS_WEIGHTS) and all(torch.isfinite(loss) for loss in parts.values())
    sum(parts.values()).backward()  # type: ignore[union-attr]
    untouched = [name for name, p in trainer.model.named_parameters() if p.requires_grad and p.grad is None]
    assert all("position" in name or "post_layernorm" in name for name in untouched), untouched


def test_heads_are_not_shipped() -> None:
    assert not set(Heads().state_dict()) & set(Trainer(steps=1).model.shipped_state())


def test_the_rate_warms_up_holds_and_falls() -> None:
    rates = [learning_rate(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(recipe.PEAK_RATE / 80) and rates[79] == rates[349] == recipe.PEAK_RATE
    assert rates[350:] == sorted(rates[350:], reverse=True) and rates[-1] == pytest.approx(
        0.02 * recipe.PEAK_RATE, rel=0.01
    )


@pytest.mark.long
def test_two_hundred_steps_learn_to_see_and_hear(bank: SpeechBank) -> None:
    """Chance is ln 10 = 2.30 for a digit, ln 7 = 1.95 for a colour."""
    trainer = Trainer(steps=1500)
    next(done for done in trainer.run(bank, FONTS) if done == 200)
    assert trainer.mean["picture"] < 1.6 and trainer.mean["speech"] < 1.2 and trainer.mean["colour"] < 1.0
