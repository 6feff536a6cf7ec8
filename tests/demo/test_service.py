"""The state machine of a supervised service, on a clock of its own."""

from pathlib import Path

import pytest

from chaos_mm.demo.child import Spec
from chaos_mm.demo.service import Service, ServiceFailed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A child whose next move the test decides."""

    made: list["Scripted"]

    def __init__(self, spec: Spec, log: Path) -> None:
        log.touch()
        self.pid = 1000 + len(self.made)
        self.ready: dict[str, object] | None = None
        self.standing_by = self.promoted = False
        self.how = ""
        self.made.append(self)

    def ended(self) -> str:
        return self.how

    def promote(self) -> None:
        self.promoted = True

    def terminate(self) -> None:
        self.how = self.how or "killed by SIGTERM"

    def end(self, within_seconds: float) -> None:
        assert self.how


@pytest.fixture
def made() -> list[Scripted]:
    Scripted.made = []
    return Scripted.made


def service(tmp_path: Path, clock: Clock, *, spare: bool = False, after: tuple[str, ...] = ()) -> Service:
    spec = Spec("target", ("run",), "http://127.0.0.1:1", after=after, spare=spare, ready_within_seconds=30)
    return Service(spec, tmp_path, clock, Scripted)  # type: ignore[arg-type]


def test_it_waits_for_what_it_needs(tmp_path: Path, made: list[Scripted]) -> None:
    one = service(tmp_path, Clock(), after=("proxy",))
    one.step(set())
    assert made == [] and one.shown.state == "waiting"
    one.step({"proxy"})
    assert len(made) == 1 and one.shown.state == "starting"


def test_up_when_ready(tmp_path: Path, made: list[Scripted]) -> None:
    one = service(tmp_path, Clock())
    one.step(set())
    one.step(set())
    assert not one.up
    made[0].ready = {"ready": "target"}
    one.step(set())
    assert one.up and one.shown.restarts == 0


def up_with_spare(tmp_path: Path, clock: Clock, made: list[Scripted]) -> Service:
    one = service(tmp_path, clock, spare=True)
    one.step(set())
    assert len(made) == 1  # or both would have one start time, by which a run tells who took over
    one.step(set())
    made[0].standing_by = made[1].standing_by = True
    one.step(set())
    assert made[0].promoted and not made[1].promoted
    made[0].ready = {}
    one.step(set())
    return one


def test_the_spare_takes_over_at_once_and_the_next_spare_comes_later(tmp_path: Path, made: list[Scripted]) -> None:
    clock = Clock()
    one = up_with_spare(tmp_path, clock, made)
    made[0].how = "killed by SIGKILL"
    one.step(set())
    assert made[1].promoted and len(made) == 2
    assert (one.shown.state, one.shown.restarts, one.shown.last_exit) == ("restarting", 1, "killed by SIGKILL")
    clock.now += 0.4
    made[1].ready = {}
    one.step(set())
    assert one.shown.state == "up" and one.shown.down_seconds == pytest.approx(0.4)
    one.step(set())
    assert len(made) == 3 and not made[2].promoted


def test_it_is_not_up_before_its_spare_is(tmp_path: Path, made: list[Scripted]) -> None:
    one = up_with_spare(tmp_path, Clock(), made)
    made[1].standing_by = False
    assert not one.up


def test_a_dead_spare_is_replaced(tmp_path: Path, made: list[Scripted]) -> None:
    one = up_with_spare(tmp_path, Clock(), made)
    made[1].how = "exit 1"
    one.step(set())
    assert len(made) == 3 and one.shown.restarts == 0


def test_a_spare_that_keeps_dying_is_given_up(tmp_path: Path, made: list[Scripted]) -> None:
    one = up_with_spare(tmp_path, Clock(), made)
    for _ in range(4):
        made[-1].how = "exit 1"
        one.step(set())
    made[-1].how = "exit 3"
    with pytest.raises(ServiceFailed, match=r"died 5 times in a minute \(last: spare: exit 3\)"):
        one.step(set())


def test_too_late_is_given_up_with_its_log(tmp_path: Path, made: list[Scripted]) -> None:
    clock = Clock()
    one = service(tmp_path, clock)
    one.step(set())
    (tmp_path / "target.log").write_text("first\nno such file: weights\n", encoding="utf-8")
    clock.now += 31
    with pytest.raises(ServiceFailed, match=r"not ready within 30 s(.|\n)*no such file: weights"):
        one.step(set())


def die_and_return(one: Service, made: list[Scripted], times: int) -> None:
    for _ in range(times):
        made[-1].ready = {}
        one.step(set())
        made[-1].how = "exit 1"
        one.step(set())


def test_five_deaths_in_a_minute_are_too_many(tmp_path: Path, made: list[Scripted]) -> None:
    one = service(tmp_path, Clock())
    one.step(set())
    die_and_return(one, made, 4)
    with pytest.raises(ServiceFailed, match="died 5 times in a minute"):
        die_and_return(one, made, 1)


def test_five_deaths_in_an_hour_are_not(tmp_path: Path, made: list[Scripted]) -> None:
    clock = Clock()
    one = service(tmp_path, clock)
    one.step(set())
    for _ in range(10):
        clock.now += 600
        die_and_return(one, made, 1)
    assert one.shown.restarts == 10
