"""A real `chaos-mm host` process, with a state folder of its own."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos_mm.control.client import ControlClient
from tests.processes import Running, start

OPTIONS = ("--control-port", "0", "--allow-live", "--max-rate", "1")


class Host:
    """A running host and a client of it."""

    def __init__(self, running: Running, state: Path) -> None:
        self.running, self.pid = running, running.process.pid
        self.client = ControlClient(running.control_url, token=(state / "token").read_text().strip())


@pytest.fixture
def start_host(tmp_path: Path) -> Iterator[Callable[[], Host]]:
    tmp_path.chmod(0o700)
    made: list[Host] = []

    def make() -> Host:
        env = {"CHAOS_MM_TOKEN_FILE": str(tmp_path / "token")}
        made.append(Host(start("host", *OPTIONS, state=tmp_path, env=env), tmp_path))
        return made[-1]

    yield make
    for host in made:
        if host.running.process.poll() is None:
            host.running.process.send_signal(signal.SIGCONT)  # a test may have stopped it
            host.running.stop()
        else:
            host.running.kill()


@pytest.fixture
def host(start_host: Callable[[], Host]) -> Host:
    return start_host()
