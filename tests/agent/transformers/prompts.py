"""Prompts of different lengths for the demo target's model, so that batches are padded; also a program.

    python -m tests.agent.transformers.prompts N STEPS

prints the SHA-256 of the logits of N prompts decoded together, in a process where nothing was ever hooked.
"""

import hashlib
import sys
from typing import Any

from chaos_mm.target import front_end, tokens
from chaos_mm.target.encoder_cache import medium_key
from chaos_mm.target.generation import ModelInput, decode

CODES = ("1234", "5678", "9012", "3456")


def spoken(row: int) -> ModelInput:
    """A text prompt, longer with each row."""
    text = " ".join(["please"] * row) + f" repeat the code {CODES[row % len(CODES)]}"
    return ModelInput(tokens.prompt_ids(tokens.text_ids(text), False, False))


def seen(seed: int) -> ModelInput:
    """A question about a random picture."""
    import torch

    pixels = torch.rand((3, front_end.HEIGHT, front_end.WIDTH), generator=torch.Generator().manual_seed(seed))
    ids = tokens.prompt_ids(tokens.text_ids("what number is shown"), True, False)
    return ModelInput(ids, pixels, None, medium_key(pixels))


def first_change(one: Any, other: Any) -> list[int | None]:
    """For each row the first output token whose logits differ in any bit; None where none does."""
    differs = [(a != b).flatten(1).any(1) for a, b in zip(one, other, strict=True)]
    return [next((step for step, rows in enumerate(differs) if rows[row]), None) for row in range(one.shape[1])]


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def main(count: int, steps: int) -> str:
    import torch

    from chaos_mm.target import model

    torch.set_num_threads(1)
    loaded = model.load()
    with torch.inference_mode():
        return digest(torch.stack(list(decode(loaded, [spoken(row) for row in range(count)], steps))))


if __name__ == "__main__":
    sys.stdout.write(main(int(sys.argv[1]), int(sys.argv[2])) + "\n")
