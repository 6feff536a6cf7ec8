"""What a run answers for after an injection, a refusal and a release that nobody heard."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from chaoslib.exceptions import ActivityFailed

from chaos_mm import faults
from chaos_mm.controls import run as live
from chaos_mm.controls.ending import hits_of
from chaos_mm.controls.injection import inject
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.witness import Witness
from chaos_mm.core.fault import Fault, Point
from chaos_mm.core.lease import Lease
from tests.edge.chaos import wait_for
from tests.edge.conftest import CLOSED, BarePoint

FAULT = "image_noise"


@pytest.fixture
def run(point: BarePoint, token: str) -> Iterator[Run]:
    """A watched run, without a guard: the test beats once, and is over long before that counts as old."""
    made = Run("t", configuration={"proxy_control_url": point.url}, secrets={"token": token})
    made.beat = made.clock()
    live.install(made)
    yield made
    made.closed.set()
    live.uninstall(made)


def test_a_refused_second_injection_leaves_the_first_answered_for(run: Run, point: BarePoint) -> None:
    inject(faults.get(FAULT), {"sigma": 0.1})
    first = run.leases[FAULT]
    with pytest.raises(ActivityFailed, match="--allow-live"):
        inject(faults.get(FAULT), {"sigma": 0.1, "selector": "live"})
    assert run.held() == [first]
    assert not first.given_up.is_set()
    assert run.release_all() == []
    assert not point.book.armed
    assert (first.evidence["ended_by"], first.evidence["released"]) == ("release", True)


def test_a_refused_first_injection_leaves_nothing_to_answer_for(run: Run) -> None:
    with pytest.raises(ActivityFailed, match="--allow-live"):
        inject(faults.get(FAULT), {"selector": "live"})
    assert run.leases == {}


def test_an_injection_nobody_answered_is_answered_for(run: Run) -> None:
    """The point may have heard it all the same."""
    run.configuration["proxy_control_url"] = CLOSED
    with pytest.raises(ActivityFailed):
        inject(faults.get(FAULT), {"point": "proxy"})
    assert [lease.name for lease in run.held()] == [FAULT]


def test_of_a_lease_whose_release_nobody_heard_no_end_is_told(run: Run, point: BarePoint) -> None:
    inject(faults.get(FAULT), {})
    point.server.close()
    assert run.release_all()
    evidence = run.leases[FAULT].evidence
    assert (evidence["state"], evidence["ended_by"], evidence["released"]) == ("unknown", "", False)
    assert run.held() == [run.leases[FAULT]]


def test_of_two_points_one_silent_the_lease_is_not_released(run: Run, point: BarePoint) -> None:
    inject(faults.get(FAULT), {})
    lease = run.leases[FAULT]
    lease.urls = (point.url, CLOSED)
    assert len(run.release(lease)) == 1
    assert not point.book.armed
    assert (lease.evidence["state"], lease.evidence["ended_by"], lease.evidence["released"]) == ("unknown", "", False)


def test_a_lease_once_released_stays_so_when_its_point_is_gone(run: Run, point: BarePoint) -> None:
    inject(faults.get(FAULT), {})
    run.release_all()
    point.server.close()
    run.release_all()
    evidence = run.leases[FAULT].evidence
    assert (evidence["ended_by"], evidence["released"]) == ("release", True)


def hold_all(run: Run, urls: tuple[str, ...], names: range) -> None:
    for n in names:
        run.hold(HeldLease(f"noise-{n}", FAULT, "image", "proxy", urls, 60.0))


def test_many_leases_at_a_point_that_hangs_cost_one_wait_and_hold_up_no_other_point(run: Run, point: BarePoint) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as deaf:  # takes connections, answers none
        silent = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        hold_all(run, (silent,), range(20))
        inject(faults.get(FAULT), {})
        began = time.monotonic()
        troubles: list[str] = []
        thread = threading.Thread(target=lambda: troubles.extend(run.release_all(timeout=3.0)))
        thread.start()
        wait_for(lambda: not point.book.armed)
        assert time.monotonic() - began < 3.0  # while the other point is still waited for
        thread.join(20.0)
        assert time.monotonic() - began < 9.0
    assert len(troubles) == 20
    assert all(lease.given_up.is_set() for lease in run.leases.values())


def test_an_injection_among_the_rollbacks_takes_none_of_them_away(run: Run) -> None:
    run.unwinding.set()
    run.stop.set()
    with pytest.raises(ActivityFailed, match="nothing was injected"):
        inject(faults.get(FAULT), {})


class Fatal:
    """An actuator whose engine does not survive anything; harms nothing."""

    def __init__(self, fatal: str) -> None:
        self._fatal = fatal

    def refusal(self, fault: Fault) -> str:
        return ""

    def selectable(self, fault: Fault) -> bool:
        return True

    def describe(self, fault: Fault) -> Mapping[str, Any]:
        return {"fatal": self._fatal}

    def begin(self, lease: Lease) -> None:
        lease.engine = {"fatal": self._fatal}

    def renew(self, lease: Lease) -> None:
        """Nothing."""

    def finish(self, lease: Lease) -> None:
        """Nothing."""


@pytest.mark.parametrize("fatal", ["restart needed", ""])
def test_a_hit_that_ends_the_engine_is_heard_of_before_its_point_goes(
    run: Run, make_point: Callable[..., BarePoint], fatal: str
) -> None:
    """The hit comes half a second after the injection, and three tenths later the point is gone, as vLLM's is."""
    agent = make_point(Point.AGENT)
    agent.canaries, agent.book.actuator = False, Fatal(fatal)
    run.configuration["agent_control_url"] = agent.url
    inject(faults.get("kv_cache_noise"), {})
    lease = run.leases["kv_cache_noise"]
    agent.canaries = True
    wait_for(lambda: agent.book.leases()[0].applied > 0)
    time.sleep(0.3)
    agent.close()
    assert (lease.evidence["applied"] > 0) is bool(fatal)
    port = agent.server.port
    make_point(Point.AGENT, port)  # another in its place
    assert run.release_all() == []
    found = hits_of(lease)
    assert (found.ended_by, found.applied > 0, found.struck_down) == ("process", bool(fatal), bool(fatal))


def test_a_witness_ends_with_its_lease_and_with_a_point_that_knows_none(run: Run, point: BarePoint) -> None:
    lease = HeldLease("noise", FAULT, "image", "agent", (point.url,), 60.0)
    unknown = Witness(run, lease, point.url)
    unknown.start()
    unknown.join(10)
    assert not unknown.is_alive()
    silent = Witness(run, lease, CLOSED)
    silent.start()
    time.sleep(0.3)
    assert silent.is_alive()  # it may start again
    lease.given_up.set()
    silent.join(10)
    assert not silent.is_alive()
