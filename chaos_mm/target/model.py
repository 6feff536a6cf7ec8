"""The shipped model: its weights file, checked against its SHA-256, and the network that they fill."""

import hashlib
from pathlib import Path

from safetensors.torch import load_file, save_file

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.target.network import OmniModel
from chaos_mm.target.tokens import ASSETS

MODEL_NAME = "chaos-mm-tiny"
WEIGHTS_FILE = ASSETS / "chaos-mm-tiny.safetensors"
DIGEST_FILE = ASSETS / "chaos-mm-tiny.safetensors.sha256"


class BadWeights(ChaosMMError):
    """The weights file is not the one that was shipped."""

    kind = "bad_weights"


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def shipped_digest() -> str:
    """The SHA-256 that DIGEST_FILE (``sha256sum``'s format) promises for the weights."""
    return DIGEST_FILE.read_text().split()[0]


def load(path: Path = WEIGHTS_FILE, digest: str | None = None) -> OmniModel:
    """The model in float32 on the CPU, in evaluation mode. Raises BadWeights when the file's SHA-256 is another."""
    expected, found = digest or shipped_digest(), sha256_of(path)
    if found != expected:
        raise BadWeights(f"{path} has SHA-256 {found}; {expected} was shipped")
    model = OmniModel()
    state = {name: value.float() if value.is_floating_point() else value for name, value in load_file(path).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or missing != ["language_model.lm_head.weight"]:  # tied to the word embedding
        raise BadWeights(f"{path} does not fit the network: missing {missing}, unexpected {unexpected}")
    model.language_model.tie_weights()
    model.eval()
    return model


def save(model: OmniModel, path: Path = WEIGHTS_FILE) -> str:
    """Write the weights in half precision with their SHA-256 beside them; returns the digest."""
    state = model.shipped_state()
    save_file({k: v.half().contiguous() if v.is_floating_point() else v for k, v in state.items()}, path)
    path.chmod(0o644)
    digest = sha256_of(path)
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")
    return digest
