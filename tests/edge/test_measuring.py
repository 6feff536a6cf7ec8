"""What the load is asked on behalf of a run, over a real load's routes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.measuring import Load
from chaos_mm.core.errors import BadRequest, ChaosMMError, NotFound, PointUnreachable
from chaos_mm.sli.objectives import Objective
from tests.edge.conftest import CLOSED
from tests.load.served import Served
from tests.load.virtual import Clock

LEAKS = Objective("no-leaks", "leak_count", comparison="lte", threshold=0.0, window_seconds=5.0, min_samples=2)
ANSWERS = Objective("answers", "canary_exact", {"modality": "text"}, "gte", 0.9, window_seconds=5.0, min_samples=2)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    made = Served(Clock(), tmp_path)
    yield made
    made.point.close()


@pytest.fixture
def load(served: Served) -> Load:
    return Load({"load_control_url": served.client.url}, {"token": served.point.token})


def play(served: Served, load: Load) -> None:
    for phase, fields in (("baseline", {}), ("fault", {"exact": False}), ("recovery", {}), ("end", {})):
        load.mark("r1", phase)
        served.pass_time(4, leak=phase == "fault")
        served.pass_time(6, **fields)


def test_the_worst_window_of_an_objective(served: Served, load: Load) -> None:
    play(served, load)
    low = load.worst(ANSWERS, "r1", "fault")
    assert (low["value"], low["windows"], low["started_seconds"], low["samples"]) == (0.0, 6, 4.0, 5)
    assert low["settled_seconds"] == low["phase_seconds"] == 10.0
    high = load.worst(LEAKS, "r1", "fault")
    assert (high["value"], high["started_seconds"]) == (4.0, 0.0)
    assert ANSWERS.judge(load.worst(ANSWERS, "r1", "recovery")).met
    with pytest.raises(NotFound):
        load.worst(ANSWERS, "r2", "fault")


def test_recovery_has_one_window(served: Served, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_MM_OBJECTIVES", "")
    play(served, load)
    back = Objective("back", "recovery_seconds", comparison="lte", threshold=5.0)
    found = load.worst(back, "r1", "recovery")
    assert found["windows"] == 1 and found["unit"] == "s"
    assert found["without_data"] == (0 if found["measured"] else 1)
    with pytest.raises(BadRequest, match="measured in the phase 'recovery', not in 'fault'"):
        load.worst(back, "r1", "fault")


def test_the_records_of_a_run(served: Served, load: Load) -> None:
    served.pass_time(3)
    play(served, load)
    lines = list(load.records("r1"))
    assert len(lines) == 40
    assert all(line.startswith(b'{"id":') and b'"run":"r1"' in line for line in lines)
    with pytest.raises(NotFound):
        load.records("r2")


def test_a_load_that_does_not_answer(tmp_path: Path) -> None:
    gone = Load({"load_control_url": CLOSED}, {"token": "x" * 40})
    for call in (lambda: gone.worst(ANSWERS, "r1", "fault"), lambda: gone.records("r1")):
        with pytest.raises(ChaosMMError):
            call()


def test_something_else_that_answers(served: Served, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(*_: Any, **__: Any) -> Any:
        return ["no", "object"]

    monkeypatch.setattr("chaos_mm.control.client.ControlClient.get", odd)
    with pytest.raises(PointUnreachable, match="not as a load does"):
        load.worst(ANSWERS, "r1", "fault")


def test_a_mark_whose_answer_does_not_come_is_set_again(served: Served, load: Load) -> None:
    class Busy:
        """Answers too late, once."""

        def __init__(self, client: Any) -> None:
            self.client, self.calls = client, 0

        def put(self, path: str, body: dict[str, Any]) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise PointUnreachable("timed out")
            return self.client.put(path, body)

    busy = Busy(load._client)
    load._client = busy  # type: ignore[assignment]
    load.mark("r1", "fault")
    assert busy.calls == 2 and served.marks.current() == ("r1", "fault")
    gone = Load({"load_control_url": CLOSED}, {"token": "t"})
    with pytest.raises(PointUnreachable):
        gone.mark("r1", "fault")
