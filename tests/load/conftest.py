"""The fake service for one test, and a clock that moves when told."""

from collections.abc import AsyncIterator

import pytest

from tests.load.fake_openai import FakeOpenAI, serving
from tests.load.virtual import Clock


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with serving(FakeOpenAI()) as service:
        yield service


@pytest.fixture
def clock() -> Clock:
    return Clock()
