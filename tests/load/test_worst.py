"""The worst window over HTTP, held against every window measured one by one."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.core.errors import BadRequest, NotFound
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.load.view import View
from chaos_mm.load.worst import Worst, WorstQuestion
from chaos_mm.sli.indicators import INDICATORS, measure
from chaos_mm.sli.records import Record
from tests.load.served import Served
from tests.load.virtual import Clock
from tests.sli.samples import failed, record


def ask(load: Served, sli: str = "canary_exact", phase: str = "fault", **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = load.client.get(f"/worst/{sli}", run="r1", phase=phase, **{"window_seconds": 4, **query})
    return found


def test_an_outage_that_healed_is_the_worst_window(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(6)
    load.pass_time(3, exact=False)
    load.pass_time(6)
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(5)
    assert ask(load) == {
        "measured": True, "value": 0.25, "unit": "ratio", "samples": 4, "window_seconds": 4.0, "reason": "",
        "windows": 12, "without_data": 0, "started_seconds": 5.0, "phase_seconds": 15.0, "settled_seconds": 15.0,
        "open": 0, "forgotten_seconds": 0.0,
    }  # fmt: skip
    assert ask(load, phase="recovery")["value"] == 1.0
    assert ask(load, "leak_count", worse="low")["value"] == 0.0


def test_windows_do_not_reach_into_another_phase(load: Served) -> None:
    load.client.put("/marks/r1/baseline", {})
    load.pass_time(10, exact=False)
    load.client.put("/marks/r1/fault", {})
    load.pass_time(10)
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(10, exact=False)
    assert (ask(load)["value"], ask(load)["windows"]) == (1.0, 7)


def test_a_phase_shorter_than_the_window_is_one_window(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(3)
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(1)
    found = ask(load, window_seconds=10)
    assert (found["windows"], found["samples"], found["window_seconds"], found["value"]) == (1, 3, 3.0, 1.0)


def test_the_last_window_ends_with_the_phase(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(9)
    load.clock.now += 0.5
    load.client.put("/marks/r1/recovery", {})
    assert ask(load)["windows"] == 7  # 0 … 5 s, and 5.5 s


def test_a_window_with_too_few_samples_is_no_data(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(5)
    load.clock.now += 5.0
    load.pass_time(5)
    load.client.put("/marks/r1/recovery", {})
    found = ask(load, min_samples=3)
    assert (found["measured"], found["windows"], found["without_data"]) == (True, 12, 6)
    nothing = ask(load, min_samples=30)
    assert (nothing["measured"], nothing["value"], nothing["without_data"]) == (False, 0.0, 12)
    assert nothing["reason"] == "none of 12 windows can be measured with at least 30 samples"
    whole = ask(load, min_samples=30, window_seconds=60)
    assert whole["reason"] == "its only window cannot be measured with at least 30 samples"


def test_what_is_open_is_waited_for_and_then_a_miss(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(8)
    late = load.hang()
    load.clock.now += 1.0
    load.client.put("/marks/r1/recovery", {})
    found = ask(load)
    assert (found["value"], found["phase_seconds"], found["settled_seconds"]) == (1.0, 9.0, 8.0)
    load.clock.now += 3.0
    found = ask(load)
    assert (found["value"], found["samples"], found["settled_seconds"]) == (0.75, 4, 9.0)
    assert ask(load, "ttft_p50", window_seconds=9)["measured"] is False
    load.store.add(replace(late, error="", complete=True, exact=True, ended_at=load.clock.now))
    assert ask(load)["value"] == 1.0


def test_a_percentile_knows_the_windows_without_an_open_request(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(40)
    load.hang()
    load.clock.now += 1.0
    load.pass_time(10)
    found = ask(load, "ttft_p50", window_seconds=20)
    assert (found["measured"], found["windows"], found["without_data"]) == (True, 32, 11)


def test_a_phase_that_comes_twice(load: Served) -> None:
    for phase, exact in (("fault", True), ("recovery", True), ("fault", False), ("end", True)):
        load.client.put(f"/marks/r1/{phase}", {})
        load.pass_time(6, exact=exact)
    found = ask(load)
    assert (found["windows"], found["value"], found["started_seconds"], found["phase_seconds"]) == (6, 0.0, 6.0, 12.0)


def test_a_phase_that_has_not_begun(load: Served) -> None:
    load.client.put("/marks/r1/baseline", {})
    found = ask(load)
    assert (found["measured"], found["windows"]) == (False, 0)
    assert found["reason"] == "the phase fault has not begun, or none of its requests is decided yet"
    with pytest.raises(NotFound, match="was never marked"):
        load.client.get("/worst/ok_ratio", run="r9", phase="fault", window_seconds=5)


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/worst/speed", {}, "SLI is 'speed'; allowed: ok_ratio"),
        ("/worst/recovery_seconds", {}, "asked at /slis/recovery_seconds"),
        ("/worst/ok_ratio", {"phase": ""}, "give run and phase"),
        ("/worst/ok_ratio", {"window_seconds": "0"}, "window_seconds is 0; allowed: a number from 1"),
        ("/worst/ok_ratio", {"worse": "left"}, "worse is 'left'; allowed: low, high"),
        ("/worst/ok_ratio", {"min_samples": "-1"}, "min_samples is '-1'"),
        ("/worst/ok_ratio", {"modality": "smell"}, "modality is 'smell'"),
        ("/worst/ok_ratio", {"windows": "3"}, "query 'windows' is unknown"),
    ],
)
def test_bad_questions_are_named(load: Served, path: str, query: dict[str, str], message: str) -> None:
    load.client.put("/marks/r1/fault", {})
    with pytest.raises(BadRequest, match=message):
        load.client.get(path, **{"run": "r1", "phase": "fault", "window_seconds": 5, **query})


def test_a_filter_that_the_sli_cannot_take_says_so(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(10)
    assert ask(load, "bystander_ok", audience="canary")["reason"] == "bystander_ok is about bystander, not canary"


class Held:
    """A view over given records of one phase, without HTTP."""

    def __init__(self, records: list[Record], start: float, end: float) -> None:
        clock = Clock(start)
        store, marks = Store(), Marks(clock)
        marks.put("r1", "fault")
        clock.now = end
        marks.put("r1", "end")
        clock.now = end + 100.0
        for one in sorted(records, key=lambda one: one.ended_at):
            store.add(one)
        self.worst = Worst(View(store, marks, "", clock), clock)

    def ask(self, sli: str, window: float, least: int, **filters: str) -> dict[str, Any]:
        query = {"run": "r1", "phase": "fault", "window_seconds": str(window), "min_samples": str(least), **filters}
        return self.worst.find(sli, WorstQuestion.read(query))


def some_records(rng: random.Random, seconds: int, rate: float) -> list[Record]:
    found = []
    for n in range(int(seconds * rate)):
        at, kind = n / rate, rng.choice([("text", "text"), ("audio", "audio"), ("agreement", "agreement")])
        fields: dict[str, Any] = {
            "kind": kind[0], "modality": kind[1], "audience": rng.choice(["canary", "bystander"]),
            "exact": rng.random() < 0.9, "leak": rng.random() < 0.02, "first_token_at": at + rng.random() * 3,
            "lag_seconds": 0.6 if rng.random() < 0.05 else 0.0,
            "answer": "4072" if rng.random() < 0.8 else "4971", "complete": rng.random() < 0.95,
        }  # fmt: skip
        miss = rng.random() < 0.05
        made = failed(n, at, audience=fields["audience"]) if miss else record(n, at, **fields)
        found.append(replace(made, ended_at=max(made.ended_at, made.first_token_at or 0.0)))
    return found


def by_brute_force(
    sli: str, records: list[Record], end: float, window: float, least: int, **filters: str
) -> tuple[list[float], int, int]:
    """(values of every whole window, windows, windows without data), each window measured from its records alone."""
    from chaos_mm.sli.indicators import Selection

    starts, last = [], max(0.0, end - window)
    while len(starts) <= last:
        starts.append(float(len(starts)))
    if starts[-1] < last:
        starts.append(last)
    limit = float(filters.pop("threshold_seconds", 0.0)) or None
    answers = [
        measure(
            sli,
            [r for r in records if begin <= r.scheduled_at < min(end, begin + window)],
            window_seconds=min(window, end),
            selection=Selection(**filters),
            threshold_seconds=limit,
        )
        for begin in starts
    ]
    good = [answer.value for answer in answers if answer.measured and answer.samples >= least]
    return good, len(starts), len(starts) - len(good)


@pytest.mark.parametrize("sli", sorted(INDICATORS))
@given(st.integers(0, 10**6), st.integers(1, 70), st.sampled_from([1.0, 5.0, 10.0, 17.5, 40.0]), st.integers(0, 25))
@settings(max_examples=12, deadline=None)
def test_every_sli_against_brute_force(sli: str, seed: int, seconds: int, window: float, least: int) -> None:
    records = some_records(random.Random(seed), seconds, 3.0)
    found = Held(records, 0.0, float(seconds)).ask(sli, window, least)
    good, windows, empty = by_brute_force(sli, records, float(seconds), window, least)
    assert (found["windows"], found["without_data"]) == (windows, empty)
    assert found["measured"] is bool(good)
    if good:
        worst = min(good) if INDICATORS[sli].higher_is_better else max(good)
        assert found["value"] == worst
        began = found["started_seconds"]
        inside = [r for r in records if began <= r.scheduled_at < min(seconds, began + window)]
        assert measure(sli, inside, window_seconds=min(window, seconds)).value == worst


@pytest.mark.parametrize(
    "filters", [{"audience": "bystander"}, {"modality": "audio"}, {"kind": "text"}, {"threshold_seconds": "1.5"}]
)
def test_filters_against_brute_force(filters: dict[str, str]) -> None:
    records = some_records(random.Random(7), 60, 4.0)
    found = Held(records, 0.0, 60.0).ask("ttft", 10.0, 2, **filters)
    good, windows, empty = by_brute_force("ttft", records, 60.0, 10.0, 2, **filters)
    assert (found["value"], found["windows"], found["without_data"]) == (min(good), windows, empty)


@pytest.mark.parametrize("sli", ["canary_exact", "ttft", "ttft_p95", "leak_count", "wer", "similarity"])
def test_an_hour_is_answered_in_well_under_a_second(sli: str) -> None:
    held = Held(some_records(random.Random(1), 3600, 12.0), 0.0, 3600.0)
    began = time.process_time()  # of this process: a busy machine is no finding
    found = held.ask(sli, 20.0, 5)
    took = time.process_time() - began
    assert found["windows"] == 3581
    assert took < 1.5, f"{sli} took {took:.2f} s"


def test_a_folder_is_not_needed(tmp_path: Path) -> None:
    assert Held([], 0.0, 10.0).ask("ok_ratio", 5.0, 1)["measured"] is False


def test_what_fell_out_of_the_store_is_no_data_and_no_good_news() -> None:
    clock = Clock(0.0)
    store, marks = Store(max_records=90), Marks(clock)
    marks.put("r1", "fault")
    for n in range(100):  # an outage in the first 10 s, of which the store keeps nothing
        store.add(failed(n, float(n)) if n < 10 else record(n, float(n)))
    clock.now = 100.0
    marks.put("r1", "end")
    clock.now = 200.0
    question = {"run": "r1", "phase": "fault", "window_seconds": "10", "min_samples": "1"}
    found = Worst(View(store, marks, "", clock), clock).find("ok_ratio", WorstQuestion.read(question))
    assert (found["value"], found["windows"], found["without_data"]) == (1.0, 91, 10)
    assert found["forgotten_seconds"] == 9.0


def test_a_slow_answer_at_the_end_of_a_phase_counts_as_what_it_comes_to(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(9)
    slow = load.hang()
    load.clock.now += 1.0
    load.client.put("/marks/r1/end", {})
    load.clock.now += 2.5
    early = ask(load, "ok_ratio")
    assert (early["value"], early["settled_seconds"], early["phase_seconds"], early["open"]) == (0.75, 10.0, 10.0, 1)
    load.store.add(replace(slow, error="", complete=True, status=200, ended_at=load.clock.now))
    final = ask(load, "ok_ratio")
    assert (final["value"], final["open"]) == (1.0, 0)
