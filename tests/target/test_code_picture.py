"""The model reads the codes that ``generation_alive`` draws without Pillow."""

import random
from typing import Any

import pytest
import torch

from chaos_mm.controls import code_picture
from chaos_mm.target import media, tokens
from chaos_mm.target.generation import ModelInput, answers

pytestmark = pytest.mark.model


def test_the_model_reads_most_of_them(model: Any) -> None:
    """21 of these 30 when it was made; a guess is right once in ten thousand."""
    codes = [f"{random.Random(seed).randrange(10_000):04d}" for seed in range(30)]
    ids = tokens.prompt_ids(tokens.text_ids("what is the code in the picture?"), True, False)
    inputs = []
    for code in codes:
        pixels = torch.from_numpy(media.read_picture(code_picture.draw(code)).copy())
        inputs.append(ModelInput(ids, pixels.permute(2, 0, 1).float() / 255, None))
    read = [tokens.answer_text(answer) for answer in answers(model, inputs)]
    assert sum(one == code for one, code in zip(read, codes, strict=True)) >= 15, read
