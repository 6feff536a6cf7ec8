"""Records, SLIs, marks and traffic over the real control API."""

import math
from dataclasses import replace
from typing import Any

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.core.errors import BadRequest, LeaseConflict, NotFound, Unauthorized
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.load.view import Question, View
from chaos_mm.sli import objectives
from chaos_mm.sli.indicators import INDICATORS
from chaos_mm.sli.records import Record
from tests.load.served import Served
from tests.load.virtual import Clock


def a_run(load: Served) -> None:
    load.pass_time(3)
    for phase, wrong in (("baseline", False), ("fault", True), ("recovery", False)):
        load.client.put(f"/marks/r1/{phase}", {})
        load.pass_time(10, exact=not wrong, answer="0000" if wrong else "4072")


def test_records_by_run_and_phase(load: Served) -> None:
    a_run(load)
    assert len(load.lines()) == 33
    assert len(load.lines(run="r1")) == 30
    fault = load.lines(run="r1", phase="fault")
    assert len(fault) == 10
    assert {(line["run"], line["phase"], line["exact"], line["ok"]) for line in fault} == {("r1", "fault", False, True)}
    assert [line["id"] for line in load.lines(run="r1", limit=2)] == ["q32", "q33"]
    assert len(load.lines(since=1030)) == 3
    assert all(Record.from_json(line) for line in fault)


def test_slis_by_phase(load: Served) -> None:
    a_run(load)
    for phase, value in (("baseline", 1.0), ("fault", 0.0), ("recovery", 1.0)):
        answer = load.client.get("/slis", run="r1", phase=phase)
        assert answer["phase_seconds"] == 10.0
        assert answer["pending"] == 0
        assert answer["slis"]["canary_exact"] == {
            "measured": True, "value": value, "unit": "ratio", "samples": 10, "window_seconds": 10.0, "reason": "",
        }  # fmt: skip
        assert set(answer["slis"]) == {*INDICATORS}
    whole = load.client.get("/slis/canary_exact", run="r1")
    assert (whole["value"], whole["samples"], whole["window_seconds"]) == (pytest.approx(2 / 3), 30, 30.0)


def test_the_last_window_of_a_phase(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(6, exact=False)
    load.pass_time(4)
    answer = load.client.get("/slis/canary_exact", run="r1", phase="fault", window_seconds=4)
    assert (answer["value"], answer["samples"], answer["window_seconds"]) == (1.0, 4, 4.0)


def test_without_a_run_it_is_the_last_minute(load: Served) -> None:
    load.pass_time(100)
    answer = load.client.get("/slis/ok_ratio")
    assert (answer["samples"], answer["window_seconds"]) == (60, 60.0)
    assert load.client.get("/slis/ok_ratio", window_seconds=5)["samples"] == 5


def test_a_request_without_an_answer_holds_the_window_back(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(5)
    load.hang()
    load.pass_time(2)  # the fast ones that were due after it are not counted yet: it may be a miss
    answer = load.client.get("/slis", run="r1", phase="fault")
    assert (answer["pending"], answer["phase_seconds"]) == (1, 7.0)
    ok = answer["slis"]["ok_ratio"]
    assert (ok["samples"], ok["window_seconds"], ok["value"], ok["reason"]) == (5, 5.0, 1.0, "")


def test_an_outage_shows_long_before_the_timeout(load: Served) -> None:
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(10)
    load.stall(4)  # four requests, and the first of them has been waiting for 4 s
    answer = load.client.get("/slis", run="r1", phase="recovery", window_seconds=10)
    slis = answer["slis"]
    # Of 4 open ones two are overdue; those of the last 2 s are waited for.
    for name in ("ok_ratio", "canary_exact", "stream_complete", "ttft", "similarity"):
        assert (slis[name]["value"], slis[name]["samples"]) == (0.8, 10), name
        assert slis[name]["reason"] == "2 requests open for up to 4.0 s"
    assert slis["wer"]["measured"] is False  # no speech was asked for
    assert load.client.get("/slis/ok_ratio", run="r1", phase="recovery", window_seconds=10) == slis["ok_ratio"]
    load.stall(5)
    ok = load.client.get("/slis/ok_ratio", run="r1", phase="recovery", window_seconds=5)
    assert (ok["value"], ok["samples"], ok["reason"]) == (0.0, 5, "7 requests open for up to 9.0 s")
    availability = objectives.load()["availability"]
    whole = load.client.get("/slis/ok_ratio", run="r1", phase="recovery")
    assert not availability.judge(whole).met


def test_a_longer_limit_waits_longer_and_says_so(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(5)
    load.stall(4)
    slow = load.client.get("/slis/e2e", run="r1", phase="fault")  # good within 5 s: these four still may be
    assert (slow["value"], slow["samples"], slow["reason"]) == (1.0, 5, "2 requests open for up to 4.0 s")
    load.stall(3)
    assert load.client.get("/slis/e2e", run="r1", phase="fault")["value"] == pytest.approx(5 / 7)
    quick = load.client.get("/slis/ttft", run="r1", phase="fault", threshold_seconds=0.15)
    assert quick["value"] == pytest.approx(5 / 10)  # never under 2 s: the first token may be here already


def test_a_percentile_has_no_value_for_what_is_open(load: Served) -> None:
    load.pass_time(30)
    assert load.client.get("/slis/ttft_p50")["measured"]
    load.stall(4)
    answer = load.client.get("/slis/ttft_p50")
    assert (answer["measured"], answer["value"]) == (False, 0.0)
    assert answer["reason"] == "a percentile is not known yet: 2 requests open for up to 4.0 s"
    assert load.client.get("/slis/ttft_p50", kind="image")["reason"].startswith("no requests of this kind")


def test_what_is_open_counts_where_it_belongs(load: Served) -> None:
    load.pass_time(10)
    load.pass_time(10, audience="bystander")
    load.stall(4, audience="bystander")
    assert load.client.get("/slis/bystander_ok")["value"] == pytest.approx(10 / 12)
    canaries = load.client.get("/slis/canary_exact")
    assert (canaries["value"], canaries["samples"], canaries["reason"]) == (1.0, 10, "")


def test_a_load_that_stands_still_is_no_outage_of_the_service(load: Served) -> None:
    load.pass_time(2)
    for _ in range(4):
        load.hang(sent=False)
        load.clock.now += 1.0
    assert "the load itself lagged: 2 of 4" in load.client.get("/slis/ok_ratio")["reason"]


def test_an_answer_settles_what_was_a_miss_so_far(load: Served) -> None:
    load.pass_time(8)
    late = load.hang()
    load.clock.now += 4.0
    assert load.client.get("/slis/ok_ratio")["value"] == pytest.approx(8 / 9)
    load.store.add(replace(late, error="", complete=True, exact=True, ended_at=load.clock.now))
    answer = load.client.get("/slis/ok_ratio")
    assert (answer["value"], answer["reason"]) == (1.0, "")


def test_a_request_that_ends_while_it_is_looked_at_counts_once(clock: Clock) -> None:
    class Racing(Store):
        def open(self, now: float) -> list[Record]:
            found = super().open(now)
            for record in found:
                self.add(replace(record, error="", complete=True, ended_at=now))
            return found

    store = Racing()
    view = View(store, Marks(clock), "", clock)
    store.expect(Record(id="q1", scheduled_at=clock.now, error="open"))
    store.sent("q1", clock.now, "4072")
    clock.now += 5.0
    answer = view.sli("ok_ratio", Question.read({}))
    assert (answer.value, answer.samples) == (1.0, 1)


def test_a_silent_service_has_not_recovered(load: Served) -> None:
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(30)
    asked = {"run": "r1", "objectives": "availability"}
    assert load.client.get("/slis/recovery_seconds", **asked)["value"] == 0.0
    load.stall(6)
    answer = load.client.get("/slis/recovery_seconds", **asked)
    assert (answer["measured"], answer["samples"]) == (False, 34)
    assert answer["reason"].startswith("not recovered: availability: ok_ratio is 0.8")


def test_a_young_load_divides_by_its_own_age(load: Served) -> None:
    load.pass_time(4)
    answer = load.client.get("/slis/goodput")
    assert (answer["value"], answer["window_seconds"]) == (1.0, 4.0)


def test_filters(load: Served) -> None:
    load.pass_time(5, kind="image", modality="image")
    load.pass_time(5, kind="colour", modality="image", exact=False)
    load.pass_time(5, audience="bystander")

    def exact(**query: Any) -> Any:
        return load.client.get("/slis/canary_exact", **query)["value"]

    assert exact(modality="image") == 0.5
    assert exact(kind="image") == 1.0
    assert exact(audience="canary") == 0.5
    strange = load.client.get("/slis/bystander_ok", audience="canary")
    assert (strange["measured"], strange["reason"]) == (False, "bystander_ok is about bystander, not canary")
    assert load.client.get("/slis/bystander_ok")["samples"] == 5
    assert load.client.get("/slis/ttft", threshold_seconds=0.05)["value"] == 0.0


def test_no_data_has_a_reason(load: Served) -> None:
    load.client.put("/marks/r1/baseline", {})
    answer = load.client.get("/slis/canary_exact", run="r1", phase="baseline")
    assert (answer["measured"], answer["value"], answer["samples"]) == (False, 0.0, 0)
    assert answer["reason"]
    later = load.client.get("/slis", run="r1", phase="recovery")
    assert later["phase_seconds"] == 0.0
    assert not later["slis"]["ok_ratio"]["measured"]


def test_recovery_seconds(load: Served) -> None:
    load.client.put("/marks/r1/fault", {})
    load.pass_time(10, exact=False, answer="0000")
    assert load.client.get("/slis/recovery_seconds", run="r1")["reason"] == "the run has no recovery phase yet"
    load.client.put("/marks/r1/recovery", {})
    load.pass_time(6, exact=False, answer="0000")
    load.pass_time(40)
    answer = load.client.get("/slis/recovery_seconds", run="r1", objectives="text-answers")
    # Half of a 15 s window may be wrong, so it holds from the moment when at most seven wrong answers are left in it.
    assert answer["measured"], answer["reason"]
    assert 0.0 <= answer["value"] <= 6.0
    with pytest.raises(BadRequest, match="objective is 'nothing'; allowed: "):
        load.client.get("/slis/recovery_seconds", run="r1", objectives="nothing")


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/slis/speed", {}, "SLI is 'speed'; allowed: ok_ratio"),
        ("/slis", {"phase": "fault"}, "a phase belongs to a run"),
        ("/slis", {"run": "r1", "phase": "chaos"}, "phase is 'chaos'"),
        ("/slis", {"window_seconds": "soon"}, "window_seconds is 'soon'; allowed: a number from 0"),
        ("/slis", {"window_seconds": "nan"}, "window_seconds is 'nan'"),
        ("/slis", {"modality": "smell"}, "modality is 'smell'; allowed: image"),
        ("/slis", {"windows": "3"}, "query 'windows' is unknown; allowed: run"),
        ("/records", {"phase": "chaos"}, "phase is 'chaos'"),
        ("/records", {"limit": "-1"}, "limit is '-1'"),
        ("/slis/recovery_seconds", {}, "belongs to a run"),
    ],
)
def test_bad_questions_are_named(load: Served, path: str, query: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        load.client.get(path, **query)


def test_an_unknown_run_is_not_found(load: Served) -> None:
    for path in ("/slis", "/records"):
        with pytest.raises(NotFound, match="run 'r9' was never marked"):
            load.client.get(path, run="r9")


def test_traffic_and_status(load: Served) -> None:
    assert load.client.get("/status")["sending"] is False
    body = {"rate": 5.0, "mix": "image=0.5,audio=0.5", "ttl_seconds": 60, "keepalive_seconds": 10}
    assert load.client.put("/traffic/r1", body)["state"] == "live"
    with pytest.raises(LeaseConflict, match="another body"):
        load.client.put("/traffic/r1", {**body, "rate": 6.0})
    load.pass_time(3, lag_seconds=0.25)
    status = load.client.get("/status")
    assert (status["sending"], status["rate"], status["session"]) == (True, 5.0, "s1")
    assert (status["records"], status["lag_seconds"], status["current_run"]) == (3, 0.25, "")
    assert load.client.delete("/traffic/r1") == {"gone": False}
    assert load.client.delete("/traffic/r1") == {"gone": True}
    assert load.client.get("/status")["traffic"][0]["ended_by"] == "release"


def test_metrics_are_numbers_and_names(load: Served) -> None:
    load.counters.ended[("canary", "image", "ok")] = 3
    load.pass_time(2, question="a secret question", answer="a secret answer")
    text = load.client.text("/metrics")
    assert 'chaos_mm_load_requests_total{audience="canary",kind="image",outcome="ok"} 3' in text
    assert "secret" not in text
    for line in text.splitlines():
        assert line.startswith("#") or math.isfinite(float(line.rsplit(" ", 1)[1]))


def test_the_token_guards_all_of_it(load: Served) -> None:
    stranger = ControlClient(load.point.server.url, "wrong")
    for call in ("/records", "/slis", "/slis/ok_ratio", "/status"):
        with pytest.raises(Unauthorized):
            stranger.get(call)
    for path in ("/marks/r1/fault", "/traffic/r1"):
        with pytest.raises(Unauthorized):
            stranger.put(path, {})


def test_a_service_whose_answers_always_take_long_is_not_broken(load: Served) -> None:
    """Five seconds an answer, one request a second: five are always open, and none of them is a miss so far."""
    load.client.put("/marks/r1/fault", {})
    waiting: list[Record] = []

    def a_second(answering: bool = True) -> None:
        waiting.append(load.hang())
        load.clock.now += 1.0
        while answering and waiting and load.clock.now - waiting[0].scheduled_at >= 5.0:
            one = waiting.pop(0)
            times = {"ended_at": one.scheduled_at + 5.0, "status": 200, "complete": True, "exact": True}
            load.store.add(replace(one, error="", **times))

    for _ in range(20):
        a_second()
    well = load.client.get("/slis/ok_ratio", run="r1", phase="fault", window_seconds=10)
    assert (well["value"], well["reason"]) == (1.0, "")
    worst = load.client.get("/worst/ok_ratio", run="r1", phase="fault", window_seconds=10)
    assert (worst["value"], worst["open"], worst["settled_seconds"]) == (1.0, 4, 16.0)
    for _ in range(8):
        a_second(answering=False)  # now it goes silent, and that shows before any timeout
    assert load.client.get("/slis/ok_ratio", run="r1", phase="fault", window_seconds=10)["value"] < 0.7
