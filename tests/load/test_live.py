"""The load against the demo target itself: a healthy service meets every shipped objective."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import read_token
from chaos_mm.core.canary import canary_key
from chaos_mm.load.send import send_canaries
from chaos_mm.sli import objectives
from chaos_mm.sli.statistics import wilson
from tests.processes import Running, start

pytestmark = pytest.mark.live
SECONDS = 20.0


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="module")
def target(state: Path) -> Iterator[Running]:
    running = start("target", "--port", "0", state=state)
    yield running
    running.stop()


def test_a_healthy_target_meets_every_objective(target: Running, state: Path) -> None:
    options = ("--target-url", target.url, "--control-port", "0", "--background-rate", "8")
    load = start("load", *options, state=state)
    try:
        client = ControlClient(load.control_url, read_token(state / "token"))
        client.put("/marks/r1/baseline", {})
        time.sleep(SECONDS)
        answers = {
            name: client.get(
                f"/slis/{one.sli}", run="r1", phase="baseline", window_seconds=one.window_seconds, **one.filters
            )
            for name, one in objectives.load(objectives.packaged_dir()).items()
        }
        judged = {name: one.judge(answers[name]) for name, one in objectives.load(objectives.packaged_dir()).items()}
        assert [judgement.reason for judgement in judged.values() if not judgement.met] == []
        assert client.get("/status")["lag_seconds"] < 0.5
    finally:
        load.stop()
    assert load.process.returncode == 0


@pytest.mark.parametrize(
    ("kind", "least"), [("image", 0.95), ("colour", 0.95), ("audio", 0.92), ("text", 0.95), ("agreement", 0.9)]
)
async def test_the_target_reads_our_canaries(target: Running, kind: str, least: float) -> None:
    records = await send_canaries(target.url, kind, 120, canary_key("live"), run="live", seed=21)
    assert all(record.ok and record.chunks and record.ttft_seconds is not None for record in records)
    assert sum(record.leak for record in records) == 0
    right = sum(record.exact is True for record in records)
    assert wilson(right, len(records))[1] >= least, f"{right} of {len(records)}"
