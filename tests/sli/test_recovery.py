"""Recovery counts from the release to the moment from which everything holds."""

import time

import pytest

from chaos_mm.sli import objectives
from chaos_mm.sli.objectives import Objective
from chaos_mm.sli.recovery import recovery_seconds
from tests.sli.samples import failed, record

OK = Objective("availability", "ok_ratio", threshold=1.0, window_seconds=5.0, min_samples=3)
RIGHT = Objective("text-answers", "canary_exact", {"kind": "text"}, threshold=0.5, window_seconds=4.0)
SOON = Objective("first-token", "ttft", {"threshold_seconds": "1"}, threshold=0.9, window_seconds=4.0)


def test_back_at_once_is_zero() -> None:
    records = [record(t, float(t)) for t in range(40)]
    answer = recovery_seconds(records, [OK, RIGHT, SOON], released_at=10.0, until=40.0)
    assert (answer.measured, answer.value, answer.unit) == (True, 0.0, "s")


def test_the_slowest_objective_decides() -> None:
    # Errors until 14 s, wrong answers until 20 s: with 1 request a second the windows hold from just after these.
    records = [failed(t, float(t)) if t < 14 else record(t, float(t), exact=t >= 20) for t in range(40)]
    assert recovery_seconds(records, [OK], released_at=10.0, until=40.0).value == pytest.approx(4.0, abs=1.0)
    both = recovery_seconds(records, [OK, RIGHT], released_at=10.0, until=40.0)
    assert both.value == pytest.approx(8.5, abs=1.5)  # half of a window may be wrong


def test_a_relapse_counts() -> None:
    records = [failed(t, float(t)) if t in (12, 25) else record(t, float(t)) for t in range(40)]
    assert recovery_seconds(records, [OK], released_at=10.0, until=40.0).value == pytest.approx(15.25, abs=0.5)


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        (14.0, "4 s after the release are less than one window of availability, 5 s"),
        (20.0, "not recovered: availability: ok_ratio is 0, not at least 1"),
    ],
)
def test_no_recovery_is_no_data_with_the_reason(until: float, reason: str) -> None:
    records = [failed(t, float(t)) for t in range(40)]
    answer = recovery_seconds(records, [OK], released_at=10.0, until=until)
    assert (answer.measured, answer.value, answer.reason) == (False, 0.0, reason)


def test_silence_is_no_recovery() -> None:
    assert not recovery_seconds([], [OK], released_at=0.0, until=60.0).measured


def test_objectives_about_something_else_are_left_out() -> None:
    alien = Objective("back-in-time", "recovery_seconds", comparison="lte", threshold=30.0)
    assert recovery_seconds([record()], [alien], released_at=0.0, until=9.0).reason.startswith("no objective")


def test_samples_are_distinct_requests() -> None:
    records = [record(t, float(t)) for t in range(40)]
    assert recovery_seconds(records, [OK, RIGHT, SOON], released_at=10.0, until=40.0).samples == 30


def test_a_long_recovery_is_reckoned_while_a_client_waits() -> None:
    # 300 s at 8 requests a second, with every objective that ships.
    kinds = ("image", "audio", "agreement", "text")
    records = [
        record(n, n / 8, kind=kinds[n % 4], modality=kinds[n % 4], audience="bystander" if n % 3 == 0 else "canary")
        for n in range(2400)
    ]
    shipped = list(objectives.load(objectives.packaged_dir()).values())
    began = time.process_time()
    answer = recovery_seconds(records, shipped, released_at=0.0, until=300.0)
    assert (answer.measured, answer.value, answer.samples) == (True, 0.0, 2400), answer.reason
    assert time.process_time() - began < 5.0
