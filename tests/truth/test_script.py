"""The scripted load and point do what the rows rely on."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos_mm.control.client import ControlClient
from tests.truth.load import Play, ScriptedLoad
from tests.truth.play import OBJECTIVES, wait_until
from tests.truth.point import FOREIGN, PointScript, ScriptedPoint

TOKEN = "t" * 43


@pytest.fixture
def load() -> Iterator[ScriptedLoad]:
    plays = [Play("canary", "fault", "wrong", 0.0, 0.3), Play("bystander", "fault", "error")]
    made = ScriptedLoad(TOKEN, plays, lambda: None, str(OBJECTIVES), rate=200.0)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("script", "counts"),
    [
        (PointScript(), (100, 100, 0)),
        (PointScript(matched=0.0), (0, 0, 0)),
        (PointScript(applied=0.4), (100, 40, 0)),
        (PointScript(applied=0.5), (100, 50, 0)),
        (PointScript(errored=1.0), (100, 0, 100)),
    ],
)
def test_the_point_counts_by_its_shares(script: PointScript, counts: tuple[int, int, int]) -> None:
    point = ScriptedPoint(TOKEN, script)
    try:
        point.client.put_lease("image_noise", {"owner": "run", "fault": "image_noise"})
        for _ in range(100):
            point.canary()
        told = point.client.lease("image_noise", "run")
        assert (told["matched"], told["applied"], told["errored"]) == counts
    finally:
        point.close()


def test_a_foreign_lease_is_there_and_counts_nothing() -> None:
    point = ScriptedPoint(TOKEN, PointScript(foreign=True))
    try:
        point.canary()
        told = point.client.lease("image_noise", FOREIGN)
        assert (told["state"], told["matched"]) == ("live", 0)
    finally:
        point.close()


def test_the_load_answers_by_audience_phase_and_time(load: ScriptedLoad) -> None:
    client = ControlClient(load.url, TOKEN)

    def asked(sli: str, **query: Any) -> float:
        found = client.get(f"/slis/{sli}", run="r1", **query)
        assert found["measured"], found
        return float(found["value"])

    client.put("/marks/r1/baseline", {})
    time.sleep(0.2)
    client.put("/marks/r1/fault", {})
    wait_until(lambda: client.get("/slis", run="r1", phase="fault")["phase_seconds"] > 0.6, "a fault phase", 10.0)
    client.put("/marks/r1/recovery", {})
    time.sleep(0.2)
    assert asked("canary_exact", phase="baseline") == asked("bystander_ok", phase="baseline") == 1.0
    assert 0.2 < asked("canary_exact", phase="fault") < 0.7
    assert asked("canary_exact", phase="fault", window_seconds=0.2) == 1.0
    assert asked("bystander_ok", phase="fault") == 0.0
    assert asked("canary_exact", phase="recovery") == asked("bystander_ok", phase="recovery") == 1.0
