"""The open loop: arrivals do not wait for answers, and every request that was due is counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from chaos_mm.core.canary import canary_key, read_canary_id
from chaos_mm.load.canaries import CanaryMaker, CanarySettings, read_mix
from chaos_mm.load.client import HttpTransport
from chaos_mm.load.client import Service as Where
from chaos_mm.load.generator import Generator, Sending
from chaos_mm.load.judging import CodeJudge
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import TrafficBook, TrafficSpec
from chaos_mm.sli.indicators import measure
from chaos_mm.sli.records import Record
from tests.load.fake_openai import FakeOpenAI
from tests.load.virtual import Service, VirtualTime, settle

KEY = canary_key("token")
TEXT = TrafficSpec(10.0, read_mix("text"), bystanders=0.0, arrivals="constant")


class Loop:
    """A generator in virtual time and its parts."""

    def __init__(self, spec: TrafficSpec = TEXT, **sending: Any) -> None:
        self.time = VirtualTime()
        self.service = Service(self.time)
        self.store, self.marks = Store(), Marks(self.time)
        self.traffic = TrafficBook(spec, clock=self.time)
        self.sending = Sending("s1", KEY, Where("http://127.0.0.1:0", "m"), **sending)
        self.generator = Generator(
            self.sending, self.service, CanaryMaker(CanarySettings(), 0, "s1"), CodeJudge(), self.traffic, self.store,
            self.marks, clock=self.time, sleep=self.time.sleep,
        )  # fmt: skip

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Loop"]:
        task = asyncio.create_task(self.generator.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def records(self) -> list[Record]:
        return sorted(self.store.since(), key=lambda record: record.n)


async def test_a_service_that_hangs_does_not_slow_arrivals_and_all_are_misses() -> None:
    loop = Loop(timeout_seconds=5.0)
    loop.traffic.background(TEXT)
    loop.service.seconds = 3600.0
    async with loop.running():
        await loop.time.advance(20.0)
        sent = [at for at, _ in loop.service.sent]
        # 10 a second for 20 s, one every 0.1 s, though not a single one was answered.
        assert len(sent) == pytest.approx(200, abs=2)
        assert all(b - a == pytest.approx(0.1, abs=1e-6) for a, b in pairwise(sent))
        assert {record.error for record in loop.records} == {"timeout"}
        assert len(loop.records) == pytest.approx(150, abs=2)
        assert all(record.e2e_seconds == 5.0 and record.exact is False for record in loop.records)
        assert measure("ok_ratio", loop.records, window_seconds=20).value == 0.0


async def test_the_cap_makes_misses_and_drops_nothing() -> None:
    loop = Loop(timeout_seconds=5.0, max_in_flight=10)
    loop.traffic.background(TEXT)
    loop.service.seconds = 3600.0
    async with loop.running():
        await loop.time.advance(4.95)
        errors = [record.error for record in loop.records]
        assert len(loop.service.sent) == 10
        assert errors == ["overload"] * len(errors)
        assert len(errors) + 10 == loop.generator.counters.due == pytest.approx(49, abs=1)
        assert all(record.sent_at is None and not record.ok for record in loop.records)


async def test_latency_counts_from_the_scheduled_time() -> None:
    loop = Loop()
    loop.traffic.background(TEXT)
    async with loop.running():
        await loop.time.advance(1.0)
        loop.time.now += 2.0  # the process was stopped for two seconds: nobody was woken
        await loop.time.advance(1.0)
    late = [record for record in loop.records if record.lag_seconds > 0.5]
    assert len(late) >= 14
    for record in late:
        assert record.sent_at is not None
        assert record.lag_seconds == pytest.approx(record.sent_at - record.scheduled_at)
        assert record.e2e_seconds == pytest.approx(record.lag_seconds + 0.2)
        assert loop.service.deadlines[record.id] == pytest.approx(record.scheduled_at + 10.0)
    # What was due meanwhile was not skipped: still one every 0.1 s.
    due = [record.scheduled_at for record in loop.records]
    assert all(b - a == pytest.approx(0.1, abs=1e-6) for a, b in pairwise(due))
    assert "the load itself lagged" in measure("ttft", late, window_seconds=4).reason


async def test_canaries_are_known_and_bystanders_are_not() -> None:
    loop = Loop(TrafficSpec(50.0, read_mix("text,image"), bystanders=0.3))
    loop.traffic.background(TrafficSpec(50.0, read_mix("text"), bystanders=0.3))
    async with loop.running():
        await loop.time.advance(20.0)
    assert 900 < len(loop.records) < 1100
    for record in loop.records:
        found = read_canary_id(KEY, record.id)
        assert (found is not None) == (record.audience == "canary")
        assert found is None or (found.run, found.n) == ("s1", record.n)
    assert 0.25 < sum(record.audience == "bystander" for record in loop.records) / len(loop.records) < 0.35
    assert len({record.id for record in loop.records}) == len(loop.records)


async def test_poisson_arrivals_are_memoryless() -> None:
    loop = Loop()
    loop.traffic.background(TrafficSpec(50.0, read_mix("text"), arrivals="poisson"))
    async with loop.running():
        await loop.time.advance(40.0)
    gaps = [b.scheduled_at - a.scheduled_at for a, b in pairwise(loop.records)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.02, rel=0.1)
    assert deviation == pytest.approx(mean, rel=0.1)  # an exponential law has both equal


async def test_traffic_starts_and_ends_with_its_owner() -> None:
    loop = Loop()
    body = {"rate": 10.0, "mix": "text", "bystanders": 0, "ttl_seconds": 60, "keepalive_seconds": 5}
    async with loop.running():
        await loop.time.advance(2.0)
        assert loop.service.sent == []
        loop.traffic.put("r1", body)
        await loop.time.advance(4.0)
        loop.traffic.put("r1", body)
        await loop.time.advance(20.0)  # the owner is gone: 4 s and one keepalive of 5 s
        assert len(loop.service.sent) == pytest.approx(90, abs=3)
        assert loop.traffic.live() == []
        loop.traffic.put("r1", body)
        await loop.time.advance(1.0)
        assert loop.traffic.delete("r1")
        before = len(loop.service.sent)
        await loop.time.advance(3.0)
        assert len(loop.service.sent) <= before + 1
    assert {record.traffic for record in loop.records} == {"r1"}


async def test_two_owners_add_up() -> None:
    loop = Loop()
    loop.traffic.background(TEXT)
    async with loop.running():
        loop.traffic.put("r1", {"rate": 5.0, "mix": "text", "arrivals": "constant", "keepalive_seconds": 60})
        await loop.time.advance(10.0)
    assert len(loop.service.sent) == pytest.approx(150, abs=4)


async def test_slis_look_no_further_than_what_is_settled() -> None:
    loop = Loop(timeout_seconds=5.0)
    loop.traffic.background(TEXT)
    async with loop.running():
        await loop.time.advance(5.0)
        settled = loop.store.settled_until(loop.time())
        assert loop.time() - 0.35 < settled <= loop.time()
        hanging_since = loop.time()
        loop.service.seconds = 3600.0
        await loop.time.advance(4.0)
        # The first request that hangs holds the mark: what was due after it is not known yet.
        assert loop.store.settled_until(loop.time()) == pytest.approx(hanging_since, abs=0.11)
        waiting = loop.store.open(loop.time())
        assert len(waiting) == pytest.approx(40, abs=2)
        assert {(record.error, record.exact, record.audience, record.kind) for record in waiting} == {
            ("open", False, "canary", "text")
        }
        assert all(len(record.expected) == 4 and record.lag_seconds < 0.01 for record in waiting)
        # Told to be patient for 2 s only, it sees all but the last 2 s, the ones without an answer among them.
        assert loop.store.settled_until(loop.time(), 2.0) == pytest.approx(loop.time() - 2.0, abs=0.11)
        await loop.time.advance(3.0)
        assert loop.store.settled_until(loop.time()) == pytest.approx(hanging_since + 2.0, abs=0.15)


async def test_traffic_that_ends_leaves_nothing_expected() -> None:
    # A request that was planned and then not sent would hold every later SLI back for ever.
    loop = Loop()
    async with loop.running():
        loop.traffic.put("r1", {"rate": 0.5, "mix": "text", "arrivals": "constant", "keepalive_seconds": 60})
        await loop.time.advance(3.0)
        assert loop.traffic.delete("r1")
        await loop.time.advance(30.0)
        assert loop.store.open(loop.time()) == []
        assert loop.store.settled_until(loop.time()) == loop.time()


async def test_records_carry_run_and_phase_by_their_scheduled_time() -> None:
    loop = Loop()
    loop.traffic.background(TEXT)
    async with loop.running():
        await loop.time.advance(1.0)
        loop.marks.put("r1", "baseline")
        await loop.time.advance(2.0)
        loop.marks.put("r1", "fault")
        await loop.time.advance(2.0)
    phases = [record.phase for record in loop.records]
    assert phases == sorted(phases, key=["", "baseline", "fault"].index)
    assert [phases.count(phase) for phase in ("", "baseline", "fault")] == pytest.approx([10, 20, 20], abs=2)


async def test_what_is_open_at_the_end_is_recorded_too() -> None:
    loop = Loop()
    loop.traffic.background(TEXT)
    loop.service.seconds = 9.0
    async with loop.running():
        await loop.time.advance(1.05)
    await settle()
    assert {record.error for record in loop.records} == {"load"}
    assert len(loop.records) == len(loop.service.sent) == 10


async def test_judging_and_leaks() -> None:
    loop = Loop()
    loop.traffic.background(TEXT)
    loop.service.answer = "nothing of the kind"
    async with loop.running():
        await loop.time.advance(2.0)
        assert not any(record.leak for record in loop.records)
        # From now on the service hands out the code of the request before.
        loop.service.answer = loop.records[-1].expected
        await loop.time.advance(0.5)
    leaked = [record for record in loop.records if record.answer == loop.service.answer]
    assert leaked
    assert all(record.leak and record.exact is False for record in leaked[:3])
    assert loop.generator.counters.leaks >= 3


async def test_over_real_http_in_every_state_of_the_service(fake: FakeOpenAI) -> None:
    store, marks = Store(), Marks()
    spec = TrafficSpec(60.0, read_mix("text"), bystanders=0.3)
    traffic = TrafficBook(spec)
    traffic.background(spec)
    where = Where(fake.url, "m")
    sending = Sending("s2", KEY, where, timeout_seconds=0.6)
    async with HttpTransport(where) as transport:
        maker = CanaryMaker(CanarySettings(), 0, "s2")
        generator = Generator(sending, transport, maker, CodeJudge(), traffic, store, marks)
        task = asyncio.create_task(generator.run())
        for mode in ("ok", "status", "cut", "hang"):
            fake.mode = mode
            marks.put("r1", {"ok": "baseline", "status": "fault", "cut": "recovery", "hang": "end"}[mode])
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.7)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    records = store.since()

    def errors(phase: str) -> set[str]:
        # A few requests are on the wire when the mode changes.
        found = [record.error for record in records if record.phase == phase]
        return {error for error in found if found.count(error) > 3}

    assert [errors(phase) for phase in ("baseline", "fault", "recovery")] == [{""}, {"status"}, {"cut"}]
    assert "timeout" in errors("end")
    good = [record for record in records if record.ok]
    assert all(record.exact and record.chunks == 4 and record.ttft_seconds is not None for record in good)
    assert {request_id for request_id, _ in fake.seen} <= {record.id for record in records}
