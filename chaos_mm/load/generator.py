"""The open loop: every request goes out when it is due, however the earlier ones fare, and every one is counted.

Nothing is dropped. A request over the in-flight cap is a record with error ``overload`` and counts as a miss; one that
the load itself sends late carries its ``lag_seconds``, and SLIs that read clocks refuse such records.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from chaos_mm.core.canary import canary_id
from chaos_mm.core.rng import Rng
from chaos_mm.load.arrivals import due_times
from chaos_mm.load.canaries import Canary, CanaryMaker
from chaos_mm.load.client import MAX_ANSWER, Reply, Service, Transport
from chaos_mm.load.judging import Judge, Verdict
from chaos_mm.load.marks import Marks
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import Traffic, TrafficBook
from chaos_mm.sli.records import Record

_LOOK_SECONDS = 0.05  # how soon traffic that was put or deleted starts and ends

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sending:
    """Who sends: ``session`` stands in canary ids (1–40 of a-z 0-9), ``key`` signs them."""

    session: str
    key: bytes = field(repr=False)
    service: Service
    seed: int = 0
    timeout_seconds: float = 10.0
    max_in_flight: int = 256


@dataclass(slots=True)
class Counters:
    """What was due and how it ended, for ``/status`` and ``/metrics``; written by the loop alone."""

    due: int = 0
    ended: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (audience, kind, error or "ok") -> count
    wrong: int = 0
    leaks: int = 0
    overloaded: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, made ahead of its time."""

    n: int
    id: str
    audience: str
    traffic: str
    due: float
    canary: Canary
    body: bytes = field(repr=False)


class Generator:
    """Runs the traffic of a TrafficBook until cancelled. All its work happens on one event loop."""

    def __init__(
        self,
        sending: Sending,
        transport: Transport,
        maker: CanaryMaker,
        judge: Judge,
        traffic: TrafficBook,
        store: Store,
        marks: Marks,
        counters: Counters | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._sending, self._transport, self._maker, self._judge = sending, transport, maker, judge
        self._traffic, self._store, self._marks = traffic, store, marks
        self._clock, self._sleep = clock, sleep
        self._n = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.counters = counters or Counters()

    async def run(self) -> None:
        """Start and end flows as the book says, for ever; cancel to stop. In-flight requests end as ``load`` errors."""
        flows: dict[tuple[str, float], asyncio.Task[None]] = {}
        try:
            while True:
                live = {(traffic.owner, traffic.started_at): traffic for traffic in self._traffic.live()}
                for key in flows.keys() - live.keys():
                    flows.pop(key).cancel()
                for key in live.keys() - flows.keys():
                    flows[key] = asyncio.create_task(self._flow(live[key]))
                for flow in [flow for flow in flows.values() if flow.done()]:
                    flow.result()  # a flow never ends by itself: this raises what broke it
                await self._sleep(_LOOK_SECONDS)
        finally:
            await _end([*flows.values(), *self._tasks])

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._tasks)

    async def _flow(self, traffic: Traffic) -> None:
        for due in self._dues(traffic):
            plan = self._plan(traffic, due)
            self._store.expect(open_record(plan, self._sending))
            try:
                # Behind schedule this only lets answers in; the record then says how late the request went out.
                await self._sleep(max(0.0, due - self._clock()))
            except asyncio.CancelledError:
                self._store.forget(plan.id)
                raise
            self._launch(plan)

    def _dues(self, traffic: Traffic) -> Iterator[float]:
        rng = Rng.derive(self._sending.seed, f"{self._sending.session}-{traffic.started_at}", "arrivals", "canary")
        return due_times(traffic.spec.arrivals, traffic.spec.rate, max(traffic.started_at, self._clock()), rng)

    def _plan(self, traffic: Traffic, due: float) -> Plan:
        sending = self._sending
        n, self._n = self._n, self._n + 1
        draw = Rng.derive(sending.seed, f"{sending.session}-{n}", "audience", "canary")
        canary = self._maker.make(n, self._maker.kind(n, traffic.spec.mix))
        bystander = draw.random() < traffic.spec.bystanders
        request_id = str(uuid.uuid4()) if bystander else canary_id(sending.key, sending.session, n)
        body = sending.service.body(canary.content)
        return Plan(n, request_id, "bystander" if bystander else "canary", traffic.owner, due, canary, body)

    def _launch(self, plan: Plan) -> None:
        run, phase = self._marks.current()
        baseline = run if phase == "baseline" else ""
        expected = self._judge.asked(plan.id, plan.canary, self._maker.index(plan.n), baseline)
        self._store.sent(plan.id, self._clock(), expected)
        self.counters.due += 1
        if len(self._tasks) >= self._sending.max_in_flight:
            self._finish(plan, Reply(error="overload", ended_at=self._clock()))
            return
        task = asyncio.create_task(self._exchange(plan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, plan: Plan) -> None:
        reply = Reply(error="load", ended_at=plan.due)
        try:
            deadline = plan.due + self._sending.timeout_seconds
            reply = await self._transport.send(plan.body, {"x-request-id": plan.id}, deadline)
        finally:
            self._finish(plan, reply)  # also when the process ends first: then the record says so

    def _finish(self, plan: Plan, reply: Reply) -> None:
        run = self._marks.latest()
        verdict = self._judge.judge(plan.id, plan.canary, reply.answer, ok=not reply.error)
        record = make_record(plan, reply, verdict, self._sending, (run, self._marks.phase_at(run, plan.due)))
        self._store.add(record)
        counters = self.counters
        key = (record.audience, record.kind, record.error or "ok")
        counters.ended[key] = counters.ended.get(key, 0) + 1
        counters.wrong += record.exact is False
        counters.leaks += record.leak
        counters.overloaded += record.error == "overload"


def make_record(plan: Plan, reply: Reply, verdict: Verdict, sending: Sending, place: tuple[str, str]) -> Record:
    """The record of a request that has ended; ``place`` is its run and phase."""
    return Record(
        id=plan.id,
        n=plan.n,
        session=sending.session,
        traffic=plan.traffic,
        audience=plan.audience,
        kind=plan.canary.kind,
        modality=plan.canary.modality,
        run=place[0],
        phase=place[1],
        scheduled_at=plan.due,
        sent_at=reply.sent_at,
        first_token_at=reply.first_token_at,
        last_token_at=reply.last_token_at,
        ended_at=max(reply.ended_at, plan.due),
        lag_seconds=0.0 if reply.sent_at is None else max(0.0, reply.sent_at - plan.due),
        max_gap_seconds=reply.max_gap_seconds,
        chunks=reply.chunks,
        status=reply.status,
        finish_reason=reply.finish_reason,
        complete=reply.complete,
        error=reply.error,
        timeout_seconds=sending.timeout_seconds,
        request_bytes=len(plan.body),
        response_bytes=reply.response_bytes,
        question=plan.canary.question,
        expected=verdict.expected[:MAX_ANSWER],
        answer=reply.answer,
        exact=verdict.exact,
        leak=verdict.leak,
    )


def open_record(plan: Plan, sending: Sending) -> Record:
    """What stands for a request that has no answer yet: a miss so far."""
    return make_record(plan, Reply(error="open"), Verdict("", False), sending, ("", ""))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
