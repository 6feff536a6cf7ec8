"""One answer before the first request: torch and librosa do much of their loading on first use."""

import torch

from chaos_mm.target import front_end, questions, tokens
from chaos_mm.target.generation import ModelInput, answers
from chaos_mm.target.network import OmniModel


def answer_once(model: OmniModel) -> None:
    """Ask about a grey picture and a click."""
    import numpy as np

    click = np.zeros(front_end.WINDOW_SAMPLES, np.float32)
    click[1000] = 1.0
    mel = torch.from_numpy(front_end.log_mel(click))
    pixels = torch.full((3, front_end.HEIGHT, front_end.WIDTH), 0.5)
    ids = tokens.prompt_ids(tokens.text_ids(questions.QUESTIONS["agreement"][0]), True, True)
    answers(model, [ModelInput(ids, pixels, mel)])
