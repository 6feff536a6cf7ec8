"""So many canaries of one kind through a URL, and their records: for dose-response curves and spot checks.

A closed loop with bounded concurrency: it asks as fast as the service answers, so its latencies are those of a busy
client, not of users. The open loop is ``generator``.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from chaos_mm.core.canary import canary_id
from chaos_mm.load.canaries import CanaryMaker, CanarySettings
from chaos_mm.load.client import HttpTransport, Service, Transport
from chaos_mm.load.generator import Plan, Sending, make_record
from chaos_mm.load.judging import CodeJudge
from chaos_mm.sli.records import Record


async def send_canaries(
    url: str,
    kind: str,
    count: int,
    key: bytes,
    *,
    run: str,
    seed: int,
    padding: int | None = None,
    concurrency: int = 8,
    first: int = 0,
    settings: CanarySettings | None = None,
    model: str = "chaos-mm-tiny",
    stream: bool = True,
    timeout_seconds: float = 30.0,
    api_key: str = "",
) -> list[Record]:
    """Send canaries ``first`` … ``first + count - 1`` of a seeded sequence; their records in that order.

    ``kind``: image, colour, audio, text or agreement. ``key``: ``core.canary.canary_key(token)``. ``run``: 1–40 of
    a-z 0-9, stands in the ids; the proxy hurts by (lease seed, id), so the same run and numbers are hurt alike.
    ``seed`` decides codes, pictures and voices; ``padding``, when given, overrides that of
    ``settings``: sentences beside the question, which change neither.
    A request that fails is a record with ``error``, never an exception. Raises BadRequest for a kind or setting.
    """
    chosen = settings or CanarySettings()
    if padding is not None:
        chosen = replace(chosen, padding=padding)
    service = Service(url, model, stream, api_key=api_key)
    sending = Sending(run, key, service, seed, timeout_seconds, concurrency)
    maker = CanaryMaker(chosen, seed, kind)
    plans = [_plan(maker, n, kind, sending) for n in range(first + count)][first:]
    async with HttpTransport(service) as transport:
        return await _send_all(plans, sending, transport)


async def _send_all(plans: Sequence[Plan], sending: Sending, transport: Transport) -> list[Record]:
    free, judge = asyncio.Semaphore(sending.max_in_flight), CodeJudge()

    async def one(plan: Plan) -> Record:
        async with free:
            now = time.monotonic()
            judge.asked(plan.id, plan.canary, plan.n, "")
            reply = await transport.send(plan.body, {"x-request-id": plan.id}, now + sending.timeout_seconds)
            verdict = judge.judge(plan.id, plan.canary, reply.answer, ok=not reply.error)
            return make_record(replace(plan, due=now), reply, verdict, sending, (sending.session, ""))

    return list(await asyncio.gather(*(one(plan) for plan in plans)))


def _plan(maker: CanaryMaker, n: int, kind: str, sending: Sending) -> Plan:
    canary = maker.make(n, kind)
    request_id = canary_id(sending.key, sending.session, n)
    return Plan(n, request_id, "canary", "send", 0.0, canary, sending.service.body(canary.content))
