"""A real vLLM server of the tiny model with the agent in it.

A module says what it needs in module variables: ``ARGUMENTS`` (more of the server's options) and ``ENVIRONMENT``. A
start takes most of a minute, so modules with the same needs share a server; one runs at a time. Modules are played by
name, but one with ``LATE`` after those without: a server that they end may have served others before, and what stands
in for it serves those that come.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.agent.vllm.client import Canaries, Client
from tests.agent.vllm.server import Server, start_server
from tests.models import tiny_llava

_POOL = pytest.StashKey["Pool"]()


class Pool:
    """The server that runs now, and what it was started with."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.server: Server | None = None
        self._needs: tuple[object, ...] = ()
        self._started = 0

    def get(self, arguments: Sequence[str], env: Mapping[str, str]) -> Server:
        """A server with these options: the running one where it has them and answers, else a fresh one."""
        needs = (tuple(arguments), tuple(sorted(env.items())))
        if self.server is None or needs != self._needs or not self.server.client.healthy(10):
            self.stop()
            self._started += 1
            folder = self.folder / f"server-{self._started}"
            self.server, self._needs = start_server(self.model, folder, arguments=arguments, env=env), needs
        return self.server

    def stop(self) -> None:
        """End the one that runs."""
        if self.server is not None:
            self.server.stop()
            self.server = None


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny LLaVA."""
    return tiny_llava(tmp_path_factory.mktemp("model") / "tiny-llava", clip_names=True)


@pytest.fixture(scope="session")
def pool(model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Servers, one after another."""
    made = request.config.stash[_POOL] = Pool(model, tmp_path_factory.mktemp("vllm"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, pool: Pool) -> Server:
    """The module's server."""
    return pool.get(getattr(request.module, "ARGUMENTS", ()), getattr(request.module, "ENVIRONMENT", {}))


@pytest.fixture
def client(server: Server) -> Client:
    """As a user of the server."""
    return server.client


@pytest.fixture
def canaries(server: Server) -> Canaries:
    """Canary ids of a run of this test's own."""
    return server.canaries()


@pytest.fixture
def prompt() -> str:
    """A prompt of its own, so that no prefix cache knows it: about 60 tokens."""
    return f"{secrets.token_hex(16)} what is shown in the photo of a cat and a dog, please describe the image"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By ``LATE`` of their modules, and else as they came."""
    items.sort(key=lambda item: getattr(getattr(item, "module", None), "LATE", 0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows the end of its server's log."""
    report = yield
    pool = item.config.stash.get(_POOL, None)
    if report.failed and pool is not None and pool.server is not None:
        report.sections.append(("vLLM's log", pool.server.tail()))
    return report
