"""The promise that a fault outlives neither its run nor the thread that watches over it."""

import threading
from collections.abc import Callable

import pytest

from chaos_mm.controls.facts import Reason
from chaos_mm.controls.guard import Guard, Renewal
from chaos_mm.controls.run import HEARTBEAT_SECONDS, Run
from chaos_mm.core.errors import PointUnreachable, UnknownLease
from tests.edge.chaos import wait_for


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Said:
    """What a renewal says, counted; ``then`` is what the point answers."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.times: list[float] = []
        self._then = then

    def __call__(self, timeout: float) -> None:
        self.times.append(timeout)
        self._then()


def fail(error: Exception) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


def watched_run(clock: Clock) -> Run:
    run = Run("t", clock=clock)
    run.beat = clock.now
    return run


def renewal(run: Run, say: Callable[[float], object], done: threading.Event | None = None) -> Renewal:
    return Renewal(run, 0.05, done or threading.Event(), say, "a lease")


def ended(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def test_a_renewal_stops_when_the_guard_is_dead() -> None:
    clock = Clock()
    run, said = watched_run(clock), Said()
    thread = renewal(run, said)
    thread.start()
    wait_for(lambda: len(said.times) > 1)
    clock.now += HEARTBEAT_SECONDS + 0.1  # and nobody beats
    assert ended(thread)
    assert not run.closed.is_set() and not run.stop.is_set()


def test_a_renewal_under_a_dead_guard_says_nothing_at_all() -> None:
    clock = Clock()
    run, said = watched_run(clock), Said()
    clock.now += HEARTBEAT_SECONDS + 0.1
    thread = renewal(run, said)
    thread.start()
    assert ended(thread)
    assert said.times == []


@pytest.mark.parametrize("how", ["stop", "closed", "done"])
def test_a_renewal_stops_with_its_run_and_its_lease(how: str) -> None:
    run, said, done = watched_run(Clock()), Said(), threading.Event()
    thread = renewal(run, said, done)
    thread.start()
    wait_for(lambda: said.times)
    {"stop": run.stop.set, "closed": run.closed.set, "done": done.set}[how]()
    assert ended(thread)


def test_a_renewal_goes_on_after_a_point_was_silent_and_ends_with_the_lease() -> None:
    run, said = watched_run(Clock()), Said(fail(PointUnreachable("silent")))
    thread = renewal(run, said)
    thread.start()
    wait_for(lambda: len(said.times) > 2)
    assert thread.is_alive()
    assert said.times[0] == pytest.approx(0.05 / 3)
    run.closed.set()
    assert ended(thread)
    gone = Said(fail(UnknownLease("gone")))
    last = renewal(watched_run(Clock()), gone)
    last.start()
    assert ended(last)
    assert len(gone.times) == 1


def test_a_point_that_stays_silent_is_told_once_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    silence = PointUnreachable("silent")
    answers = iter([silence, silence, silence, None, silence, UnknownLease("gone")])

    def say() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    thread = renewal(watched_run(Clock()), Said(say))
    thread.start()
    assert ended(thread)
    told = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert [text for text in told if "keepalive" in text] == ["chaos_mm: keepalive of a lease: silent"] * 2


def test_a_guard_beats_until_its_run_is_closed_and_nudges_a_stopped_one() -> None:
    run, nudges = Run("t"), Said()
    guard = Guard(run, lambda: nudges(0.0))
    guard.start()
    first = run.beat
    wait_for(lambda: run.beat > first)
    assert run.watched and nudges.times == []
    run.stop.set()
    wait_for(lambda: nudges.times)
    run.unwinding.set()
    run.closed.set()
    assert ended(guard)
    assert not run.watched


def test_a_guard_that_died_leaves_its_run_unwatched() -> None:
    clock = Clock()
    run = Run("t", clock=clock)
    Guard(run, lambda: None)  # made, and never alive
    assert run.watched
    clock.now += HEARTBEAT_SECONDS
    assert not run.watched


def test_a_run_whose_runner_is_gone_ends() -> None:
    run, parents = Run("t"), iter([4711, 4711])
    guard = Guard(run, lambda: None, runner=4711, parent=lambda: next(parents, 1))
    guard.start()
    wait_for(run.stop.is_set)
    run.unwinding.set()
    run.closed.set()
    assert ended(guard)
    assert run.notes == [Reason("interrupted", "its runner, process 4711, is gone")]


def test_a_run_started_by_hand_does_not_look_at_its_parent() -> None:
    run, asked = Run("t"), Said()
    guard = Guard(run, lambda: None, parent=lambda: asked(0.0) or 1)
    guard.start()
    first = run.beat
    wait_for(lambda: run.beat > first)
    run.closed.set()
    assert ended(guard)
    assert asked.times == [] and not run.stop.is_set()
