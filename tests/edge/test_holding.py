"""Holding from a fault's first hit on: a ramp takes its time."""

import threading
import time
from collections.abc import Iterator

import pytest

from chaos_mm import actions, faults
from chaos_mm.controls import run as live
from chaos_mm.controls.injection import inject
from chaos_mm.controls.run import Run
from tests.edge.conftest import BarePoint

FAULT = "image_noise"


@pytest.fixture
def run(point: BarePoint, token: str) -> Iterator[Run]:
    """A watched run that holds a lease which nobody meets yet."""
    point.canaries = False
    made = Run("t", configuration={"proxy_control_url": point.url}, secrets={"token": token})
    made.beat = made.clock() + 60
    live.install(made)
    inject(faults.get(FAULT), {"sigma": 0.1})
    yield made
    made.closed.set()
    live.uninstall(made)


def test_its_seconds_are_counted_from_the_first_hit(run: Run, point: BarePoint) -> None:
    timer = threading.Timer(0.8, setattr, (point, "canaries", True))
    timer.start()
    told = actions.hold(seconds=0.4, lease=FAULT, within_seconds=30)
    timer.join()
    assert told["hit"] is True and told["waited_seconds"] >= 0.8 and told["held_seconds"] >= 0.4
    (lease,) = point.book.leases()
    assert time.monotonic() - lease.first_applied_at >= 0.4


def test_one_that_never_hits_is_waited_for_so_long_and_then_not_held(run: Run) -> None:
    told = actions.hold(seconds=60, lease=FAULT, within_seconds=0.6)
    assert told["hit"] is False and told["stopped"] is False
    assert 0.6 <= told["waited_seconds"] < 10 and told["held_seconds"] < 1


@pytest.mark.parametrize("ending", ["unknown", "ended", "stop"])
def test_nobody_waits_for_what_cannot_come(run: Run, ending: str) -> None:
    if ending == "ended":
        run.release_all()
    if ending == "stop":
        threading.Timer(0.3, run.stop.set).start()
    told = actions.hold(seconds=60, lease="another" if ending == "unknown" else FAULT, within_seconds=60)
    assert told["hit"] is False and told["waited_seconds"] + told["held_seconds"] < 10
    assert told["stopped"] is (ending == "stop")


def test_without_a_lease_it_holds_at_once(run: Run) -> None:
    assert actions.hold(seconds=0.2).keys() == {"held_seconds", "stopped"}
