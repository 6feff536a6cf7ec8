"""A real point on a free loopback port that every kind of point's address names, and a state folder of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from chaos_mm.cli import main
from chaos_mm.control.client import ControlClient
from chaos_mm.control.point import ControlPoint, PointSettings, start_control
from chaos_mm.controls.names import POINT_NAMES
from chaos_mm.core.fault import Point, Target
from chaos_mm.faults import get
from tests.core.samples import CATALOGUE

Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(folder))
    monkeypatch.delenv("CHAOS_MM_TOKEN_FILE", raising=False)
    monkeypatch.delenv("CHAOS_MM_OBJECTIVES", raising=False)
    return folder


@pytest.fixture
def point(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPoint]:
    known = {**CATALOGUE, "image_noise": get("image_noise")}
    served = start_control(PointSettings("http://127.0.0.1:0"), Point.PROXY, known, frozenset(Target))
    for name in POINT_NAMES.values():
        monkeypatch.setenv(name.variable, served.server.url)
    yield served
    served.close()


@pytest.fixture
def client(point: ControlPoint) -> ControlClient:
    return ControlClient(point.server.url)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address at which nobody listens, named for every kind of point."""
    url = "http://127.0.0.1:9"
    for name in POINT_NAMES.values():
        monkeypatch.setenv(name.variable, url)
    return url


@pytest.fixture
def cli() -> Cli:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="chaos-mm", catch_exceptions=False)

    return run
