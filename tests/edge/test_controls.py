"""The parts of the control, one by one."""

import json
import math
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from chaoslib.exceptions import InterruptExecution, InvalidActivity
from chaoslib.hypothesis import within_tolerance
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.controls import run as live
from chaos_mm.controls import verdict
from chaos_mm.controls.declared import activity
from chaos_mm.controls.names import control_urls, phase_length
from chaos_mm.controls.phases import hits
from chaos_mm.controls.run import HeldLease, Run
from chaos_mm.controls.signals import Signals, place
from chaos_mm.controls.stopping import StopFlag
from chaos_mm.controls.strict import is_value, strict
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Param


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def frame_in(*path: str) -> FrameType:
    """A frame whose callers are functions of those names, the outermost first, in ``chaoslib``, unless they name a
    file as ``file:function``."""
    found: list[FrameType] = []
    call: Any = lambda: found.append(sys._getframe())  # noqa: E731 - the innermost function has no name to match
    for one in reversed(path):
        filename, _, name = one.rpartition(":")
        scope: dict[str, Any] = {"inner": call}
        exec(compile(f"def {name}():\n    return inner()\n", filename or "/lib/chaoslib/run.py", "exec"), scope)
        call = scope[name]
    call()
    return found[0]


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((), "outside"),
        (("_run",), "outside"),
        (("_run", "begin"), "between"),
        (("run_method",), "between"),
        (("run_gate_hypothesis", "execute_activity"), "activity"),
        (("run_rollback", "execute_activity"), "rollback"),
        (("/foreign.py:execute_activity",), "outside"),
        (("run_method", "execute_activity", f"{__import__('logging').__file__}:emit"), "locked"),
    ],
)
def test_place(path: tuple[str, ...], where: str) -> None:
    assert place(frame_in(*path)) == where


def test_a_signal_is_raised_where_the_engine_can_bear_it() -> None:
    for path, raised in (
        (("execute_activity",), [20, 20]),
        (("run_method",), [20, None]),
        (("run_rollback",), [None] * 2),
    ):
        signals = Signals(Run("t"))
        assert [exit_code(signals, signal.SIGTERM, frame_in(*path)) for _ in range(2)] == raised


def test_sigusr2_asks_for_no_rollbacks() -> None:
    assert exit_code(Signals(Run("t")), signal.SIGUSR2, frame_in("execute_activity")) == 30


def exit_code(signals: Signals, number: int, frame: FrameType) -> int | str | None:
    try:
        signals.on_signal(number, frame)
    except SystemExit as leaving:
        return leaving.code
    return None


def test_ignored_signals_stay_ignored_and_the_rest_is_put_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        signals = Signals(Run("t"))
        signals.install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) == signals.on_signal
        signals.restore()
        assert signal.getsignal(signal.SIGINT) == interrupt
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_another_thread_gets_stops_the_run_at_once() -> None:
    """The kernel may hand a signal to any thread, and the main one, which alone runs handlers, sleeps on."""
    signals = Signals(run := Run("t"))
    signals.install()
    try:
        mine = threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
        mine.start()
        began = time.monotonic()
        assert run.stop.wait(20.0) is True
        assert time.monotonic() - began < 10.0
        mine.join()
        assert signals.names == ["SIGTERM"]
    finally:
        signals.restore()


def test_the_threads_and_the_wakeup_of_signals_end_with_them() -> None:
    signals = Signals(Run("t"))
    signals.install()
    (ears,) = [one for one in threading.enumerate() if one.name == "chaos-mm-signals"]
    signals.restore()
    ears.join(10.0)
    assert not ears.is_alive()
    assert signal.set_wakeup_fd(-1) == -1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_nudge_that_comes_with_a_signal_is_no_signal_of_its_own() -> None:
    signals = Signals(run := Run("t"))
    run.nudged = True
    assert exit_code(signals, signal.SIGINT, frame_in("execute_activity")) == 20
    assert exit_code(signals, signal.SIGUSR1, frame_in("execute_activity")) == 20
    assert signals.names == ["SIGINT"]


def test_a_stop_flag_wakes_its_waiters_for_good() -> None:
    flag = StopFlag()
    assert flag.wait(0.0) is False
    threading.Timer(0.02, flag.set).start()
    assert flag.wait(30.0) is True
    assert flag.wait(30.0) is True
    assert flag.is_set()


def test_a_stop_flag_may_be_set_by_a_handler_that_interrupts_the_wait() -> None:
    """With ``threading.Event`` this can stand still for ever."""
    flag = StopFlag()
    before = signal.signal(signal.SIGALRM, lambda *_: flag.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert flag.wait(30.0) is True
    finally:
        signal.signal(signal.SIGALRM, before)


def test_phases_only_go_on() -> None:
    clock = Clock()
    run = Run("t", clock=clock)
    assert run.enter("baseline")
    clock.now += 4
    assert run.phase_left(10) == 6
    assert not run.enter("baseline")
    assert run.enter("recovery")
    assert not run.enter("fault")
    assert run.begun == ["baseline", "recovery"]


@pytest.fixture
def installed() -> Any:
    clock = Clock()
    run = Run("t", clock=clock)
    live.install(run)
    yield run, clock
    live.uninstall(run)


def test_only_a_watched_run_may_inject(installed: tuple[Run, Clock]) -> None:
    run, clock = installed
    run.beat = clock.now
    assert live.require("inject_x") is run
    clock.now += live.HEARTBEAT_SECONDS + 0.1
    with pytest.raises(SystemExit) as leaving:
        live.require("inject_x")
    assert leaving.value.code == 20


def test_a_run_that_is_being_stopped_injects_nothing_more(installed: tuple[Run, Clock]) -> None:
    run, clock = installed
    run.beat = clock.now
    run.stop.set()
    with pytest.raises(SystemExit):
        live.require("inject_x")


def test_without_a_run_nothing_may_be_injected() -> None:
    assert live.current() is None
    with pytest.raises(SystemExit):
        live.require("inject_x")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.binary()
        | st.just(object())
        | st.just({1, 2}),
        lambda inner: (
            st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner)
        ),
    )
)
def test_everything_becomes_strict_json(value: Any) -> None:
    json.dumps(strict(value), allow_nan=False)


@pytest.mark.parametrize("output", ["a", ["a", "b"], [], {}, {"x": None}, 0, 1.5, False, (1, 2), b"x"])
def test_what_another_extension_measures_is_left_to_its_tolerance(output: Any) -> None:
    assert is_value(output)


@pytest.mark.parametrize("output", [None, math.nan, math.inf, -math.inf])
def test_nothing_and_no_number_are_no_value(output: Any) -> None:
    assert not is_value(output)


RANGE, PAIR = {"type": "range", "range": [0, 1]}, [0, 1]
AIMED = {**RANGE, "target": "value"}
REGEX, JSONPATH = {"type": "regex", "pattern": "a"}, {"type": "jsonpath", "path": "$.a"}


@pytest.mark.parametrize(
    ("output", "tolerance", "can"),
    [
        (0.5, RANGE, True),
        ("0.5", RANGE, True),
        ("many", RANGE, True),  # out of range, as the toolkit finds by itself
        ("nan", RANGE, False),
        (True, RANGE, True),
        ([], RANGE, False),
        (b"0.5", RANGE, False),
        ({0.5}, RANGE, False),
        ({"value": 0.5}, RANGE, False),
        ({"value": 0.5}, AIMED, True),
        ({"value": "nan"}, AIMED, False),
        ({"value": None}, AIMED, False),
        ({"other": 0.5}, AIMED, False),
        (0.5, AIMED, False),
        (0.5, PAIR, True),
        ({"status": 200}, PAIR, True),
        ({"value": 0.5}, PAIR, False),
        ([], PAIR, False),
        (b"x", PAIR, False),
        (b"x", [b"a", b"b", b"x"], True),
        ("abc", REGEX, True),
        (3, REGEX, False),
        ({"a": "abc"}, {**REGEX, "target": "a"}, True),
        ({"a": 3}, {**REGEX, "target": "a"}, False),
        ([1], JSONPATH, True),
        ([1], {**JSONPATH, "target": "a"}, False),
        ([1], {"type": "probe"}, True),
        (None, True, False),
        ("x", "x", True),
    ],
)
def test_what_would_crash_a_tolerance_is_no_value(output: Any, tolerance: Any, can: bool) -> None:
    assert is_value(output, tolerance) == can
    if can and tolerance != {"type": "probe"} and "jsonpath" not in str(tolerance):
        within_tolerance(tolerance, output)  # the toolkit's own, which must not raise


def test_strict_json_hides_bytes_and_objects() -> None:
    assert strict({"a": b"secret", 1: (math.nan, {3}), "x": object()}) == {
        "a": "<6 bytes>",
        "1": ["nan", "<set>"],
        "x": "<object>",
    }


@activity(seconds=Param("how long", ge=0, le=10, unit="s"))
def wait(seconds: float = 1.0, name: str = "x", configuration: Any = None) -> dict[str, Any]:
    """Nothing."""
    return {"seconds": seconds, "name": name, "inf": math.inf}


def test_an_activity_converts_its_arguments_and_cleans_its_answer() -> None:
    assert wait(seconds="2", configuration={}) == {"seconds": 2.0, "name": "x", "inf": "inf"}
    with pytest.raises(InvalidActivity, match=r"wait: seconds=11 is not allowed; it must be a number in \[0, 10\] s"):
        wait(seconds=11)


def test_names_come_from_configuration_then_environment_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAOS_MM_PROXY_CONTROL_URL", raising=False)
    assert control_urls("proxy", {}) == ("http://127.0.0.1:8602",)
    monkeypatch.setenv("CHAOS_MM_PROXY_CONTROL_URL", "http://127.0.0.1:1/")
    assert control_urls("proxy", {}) == ("http://127.0.0.1:1",)
    assert control_urls("proxy", {"proxy_control_url": "http://a:1, http://b:2"}) == ("http://a:1", "http://b:2")
    assert control_urls("kubernetes", {}) == ()


def test_phase_lengths_are_numbers() -> None:
    assert phase_length("fault", {"fault_seconds": "4.5"}) == 4.5
    assert phase_length("fault", {}) == 0.0
    with pytest.raises(InvalidParams, match="fault_seconds='soon'"):
        phase_length("fault", {"fault_seconds": "soon"})


def test_hits_in_words() -> None:
    lease = HeldLease("n", "image_noise", "image", "proxy", (), 10.0)
    lease.evidence = {
        "matched": 36,
        "applied": 35,
        "errored": 1,
        "achieved": {"psnr_db": {"mean": 26.0206, "count": 35}},
    }
    assert hits(lease) == "image_noise hit 35 of 36 requests, 1 failed (psnr_db 26.02)"


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a control that is configured here makes its folders."""
    monkeypatch.setenv("CHAOS_MM_REPORTS", str(tmp_path / "reports"))
    return tmp_path / "reports"


@pytest.mark.usefixtures("reports")
def test_what_configure_cannot_do_is_raised_before_the_experiment() -> None:
    verdict.configure_control(lod_rate=1, experiment={"title": "t"})
    with pytest.raises(InterruptExecution, match="unknown argument 'lod_rate'"):
        verdict.before_experiment_control({})
    verdict.cleanup_control()
    with pytest.raises(InterruptExecution, match="was not configured"):
        verdict.before_experiment_control({})


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize("rate", ["fast", -1, math.nan])
def test_a_load_rate_that_is_no_rate_is_refused(rate: Any) -> None:
    verdict.configure_control(load_rate=rate, experiment={"title": "t"})
    with pytest.raises(InterruptExecution, match="load_rate="):
        verdict.before_experiment_control({})
    verdict.cleanup_control()
