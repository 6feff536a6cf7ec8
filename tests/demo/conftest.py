"""A demo of stand-ins in a state folder of its own, and nothing of it left afterwards."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_mm.demo import lifecycle
from tests.ports import free_ports

SUPERVISOR = (sys.executable, str(Path(__file__).with_name("stand_in_supervisor.py")))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "state"
    monkeypatch.setenv("CHAOS_MM_STATE_DIR", str(folder))
    yield folder
    lifecycle.down(lambda text: None)


@pytest.fixture
def base_port() -> int:
    return free_ports(6)
