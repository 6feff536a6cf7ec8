"""The demo target's model beside an agent, and prompts for it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.transformers.attached import Attached, attached


@pytest.fixture(scope="session")
def model() -> Any:
    import torch

    from chaos_mm.target import model as shipped

    torch.set_num_threads(1)
    return shipped.load()


@pytest.fixture
def agent(model: Any, tmp_path: Path) -> Iterator[Attached]:
    """An agent attached to the model, its seams proven."""
    with attached(tmp_path / "state", model) as made:
        made.proven("kv", "attention", "embedding")
        yield made


@pytest.fixture(scope="session")
def generate(model: Any) -> Callable[..., Any]:
    """Logits (steps, n, words) of prompts that ask to repeat codes, row i being request ``ids[i]``'s."""
    import torch

    from chaos_mm.core import serving
    from tests.agent.transformers.prompts import spoken

    def run(ids: Sequence[str], steps: int = 8) -> Any:
        from chaos_mm.target.generation import decode

        with torch.inference_mode(), serving.running(ids):
            return torch.stack(list(decode(model, [spoken(row) for row in range(len(ids))], steps)))

    return run
