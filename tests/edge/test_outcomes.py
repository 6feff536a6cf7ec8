"""What leaves an activity: strict JSON or one sentence, by its deadline, whatever hangs, breaks or lies underneath."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chaoslib.exceptions import ActivityFailed, InterruptExecution, InvalidActivity

from chaos_mm import actions, faults, probes, tolerances
from chaos_mm.controls import run as live
from chaos_mm.controls.declared import activity
from chaos_mm.controls.measuring import no_data
from chaos_mm.controls.names import POINT_NAMES
from chaos_mm.controls.outcome import ACTION_SECONDS
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.core.errors import PointUnreachable
from chaos_mm.core.fault import Param
from tests.edge.chaos import Chaos, Process, experiment, wait_for
from tests.edge.chaos import activity as entry
from tests.edge.conftest import BarePoint
from tests.trickle import HEAD, trickling

SECRET = "zq-secret-in-an-error"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "release": {"lease": "image_noise"},
    "hold": {"seconds": 0.2},
    "sli": {"name": "ok_ratio", "phase_seconds": 0.2},
    "fault_hits": {"lease": "image_noise"},
    "lease_evidence": {"lease": "image_noise"},
    "fault_active": {"lease": "image_noise"},
    "points_ready": {"points": "proxy,agent,host,load"},
    "target_alive": {"timeout_seconds": 0.5},
    "generation_alive": {"timeout_seconds": 0.5},
    "health_lie_seconds": {"window_seconds": 1.0, "timeout_seconds": 0.5},
    "forward_progress": {"window_seconds": 1.0},
}
DEADLINES = {
    "hold": 0.2,
    "sli": 0.2 + ACTION_SECONDS,
    "no_residue": 5.0,
    "points_ready": 5.0,
    "target_alive": 0.5,
    "generation_alive": 0.5 + ACTION_SECONDS,
    "health_lie_seconds": 1.5 + ACTION_SECONDS,
    "forward_progress": 1.0 + ACTION_SECONDS,
}
# One function makes every inject action: a fault of each point stands for the rest.
INJECTED = {fault.points[0]: f"inject_{name}" for name, fault in faults.catalogue().items()}
WRITTEN = [name for name in actions.__all__ if not name.startswith("inject_")]
ALL = [*((actions, name) for name in (*WRITTEN, *INJECTED.values())), *((probes, name) for name in probes.__all__)]


@pytest.fixture
def slow() -> Iterator[str]:
    with trickling(HEAD) as url:
        yield url


@pytest.fixture
def hung(slow: str) -> Iterator[dict[str, Any]]:
    """A watched run that holds a lease at a point that keeps its callers, as does everything else."""
    configuration = {name.key: slow for name in POINT_NAMES.values()} | {"target_url": slow}
    secrets = {"token": "t" * 40}
    run = Run("a test", configuration=configuration, secrets=secrets)
    run.enter("baseline")
    run.beat = run.clock() + 60
    run.hold(HeldLease("image_noise", "image_noise", "image", "proxy", (slow,), 10.0))
    live.install(run)
    yield {"configuration": configuration, "secrets": secrets}
    live.uninstall(run)


@pytest.mark.parametrize(("module", "name"), ALL, ids=[name for _, name in ALL])
def test_everything_ends_by_its_deadline_though_bytes_keep_coming(module: Any, name: str, hung: dict[str, Any]) -> None:
    fault = faults.catalogue().get(name.removeprefix("inject_"))
    given = {"point": fault.points[0].value} if fault is not None else ARGUMENTS.get(name, {})
    began = time.monotonic()
    if module is actions and name not in ("hold", "stop_load"):
        with pytest.raises(ActivityFailed, match=r"\A[^\n]*timed out[^\n]*\Z"):
            getattr(module, name)(**given, **hung)
    else:
        answer = getattr(module, name)(**given, **hung)
        assert module is actions or answer["measured"] is False or answer["value"] == 0.0
        json.dumps(answer, allow_nan=False)
    assert time.monotonic() - began < DEADLINES.get(name, ACTION_SECONDS) * 1.5 + 0.3


def raising(error: BaseException, **how: Any) -> Callable[..., Any]:
    @activity(**how)
    def fails(amount: float = 1.0) -> dict[str, Any]:
        raise error

    return fails


@pytest.mark.parametrize(
    "error",
    [ValueError(SECRET), KeyError(SECRET), OSError(13, "Permission denied", SECRET), RecursionError(SECRET)],
    ids=lambda error: type(error).__name__,
)
def test_an_error_nobody_expected_is_one_sentence_without_its_text(error: Exception) -> None:
    with pytest.raises(ActivityFailed) as raised:
        raising(error)()
    assert str(raised.value).startswith(f"fails: unexpected {type(error).__name__}")
    assert "test_outcomes.py:" in str(raised.value)
    assert SECRET not in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__context__ is None  # the journal would hold its text
    answer = raising(error, unable=no_data)()
    assert answer == no_data(str(raised.value))


def test_our_own_errors_say_what_they_say() -> None:
    with pytest.raises(ActivityFailed, match="^fails: nobody there$") as raised:
        raising(PointUnreachable("nobody there"))()
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "error", [SystemExit(20), InterruptExecution("stop"), ActivityFailed("no"), KeyboardInterrupt()]
)
def test_what_stops_a_run_passes(error: BaseException) -> None:
    for how in ({}, {"unable": no_data}):
        with pytest.raises(type(error)) as raised:
            raising(error, **how)()
        assert raised.value is error


def test_a_deadline_that_cannot_be_told_is_an_outcome_too() -> None:
    def unknown(_: object) -> float:
        raise KeyError(SECRET)

    assert raising(ValueError("x"), deadline=unknown, unable=no_data)()["measured"] is False


def test_a_bad_argument_is_refused_by_name() -> None:
    with pytest.raises(InvalidActivity, match=r"amount='much' is not allowed"):
        raising(ValueError("x"), amount=Param("how much"))(amount="much")


def test_what_is_answered_is_strict_json() -> None:
    @activity()
    def odd() -> dict[str, Any]:
        return {"nan": float("nan"), "bytes": b"abc", "set": {1}, "deep": {"tuple": (1, float("inf"))}, 3: None}

    json.dumps(odd(), allow_nan=False)


STRANGE: list[Any] = [None, float("nan"), float("inf"), 10**400, b"x", [], {}, {"measured": True}, object(), "1", True]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_no_tolerance_ever_raises(value: Any) -> None:
    for bound in STRANGE:
        assert tolerances.at_least(bound, value) is False or value is True
        assert tolerances.at_most(bound, value, bound) is False or value is True
        assert tolerances.between(bound, bound, value) is False or value is True
    assert tolerances.within_objective("picture-answers", value) is False
    assert tolerances.within_objective(value, value) is False
    assert tolerances.measured(value) in (False, True)


@pytest.fixture
def swapped(chaos: Chaos, point: BarePoint) -> Iterator[Process]:
    """A run whose point begins to keep its callers under the fault, on its way to its release."""
    inject, lease = entry("inject_image_noise", sigma=0.1, ttl_seconds=60), entry("release", lease="image_noise")
    process = chaos.start("run", experiment(inject, entry("hold", seconds=1.5), lease))
    try:
        wait_for(lambda: point.book.armed)
        point.book.close()
        point.server.close()
        with trickling(HEAD, port=point.server.port):
            yield process
    finally:
        process.popen.kill()
        process.popen.wait()


def test_a_real_run_gives_a_trickling_point_a_second(swapped: Process) -> None:
    got = swapped.finish()
    told = got.activity("release")
    assert told["status"] == "failed"
    assert 0.5 < told["duration"] < 2.0
    assert "timed out" in got.output and "Traceback" not in got.output


def test_a_signal_inside_an_action_that_asks_stops_the_run(swapped: Process) -> None:
    wait_for(lambda: "Action: release" in swapped.output.read_text())
    os.kill(swapped.popen.pid, signal.SIGTERM)
    got = swapped.finish(30)
    assert got.journal is not None
    assert got.journal["status"] == "interrupted"
    assert got.journal["steady_states"]["after"] is None
    assert got.status in (4, 5)  # 5 where nobody can vouch for the point, which never answers again


def test_a_background_hold_never_outlives_a_run_that_stops(chaos: Chaos, point: BarePoint) -> None:
    live = entry("inject_image_noise", selector="live", ttl_seconds=60)  # the point does not allow it
    began = time.monotonic()
    got = chaos.run(experiment({**entry("hold", seconds=60), "background": True}, live))
    assert time.monotonic() - began < 30
    assert got.status != 0 and "--allow-live" in got.output
    assert point.book.leases() == []
