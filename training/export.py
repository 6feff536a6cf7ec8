"""Turn a checkpoint into the shipped files: ``python -m training.export training/runs/last.pt``."""

import sys
from pathlib import Path

import torch

from chaos_mm.target import model, tokens
from chaos_mm.target.network import OmniModel


def write_tokenizer() -> None:
    """Write assets/tokenizer.json from the wordings; ids depend on them, so this comes before training only."""
    tokens.build_tokenizer().save(str(tokens.TOKENIZER_FILE), pretty=True)


def export(checkpoint: Path) -> str:
    """Write the checkpoint's network in half precision, with its SHA-256; returns the digest."""
    network = OmniModel()
    network.load_state_dict(torch.load(checkpoint))
    return model.save(network)


if __name__ == "__main__":
    print(export(Path(sys.argv[1] if len(sys.argv) > 1 else "training/runs/last.pt")))
