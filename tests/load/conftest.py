"""The fake service for one test, and a clock that moves when told."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.load.fake_openai import FakeOpenAI, serving
from tests.load.served import Served
from tests.load.virtual import Clock


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with serving(FakeOpenAI()) as service:
        yield service


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def load(clock: Clock, tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    served = Served(clock, tmp_path)
    yield served
    served.point.close()
