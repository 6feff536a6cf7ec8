"""The shipped model, loaded once, and a server around it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiohttp.test_utils import TestClient


@pytest.fixture(scope="session")
def model() -> Any:
    import torch

    from chaos_mm.target import model as shipped

    torch.set_num_threads(1)
    return shipped.load()


@pytest.fixture
async def client(model: Any) -> AsyncIterator["TestClient[Any, Any]"]:
    """A client of a target that listens on a free port."""
    from aiohttp.test_utils import TestClient, TestServer

    from chaos_mm.target.server import TargetServer

    server = TestServer(TargetServer(model).app, host="127.0.0.1", handler_cancellation=True)
    async with TestClient(server) as made:
        yield made
