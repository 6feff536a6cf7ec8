"""A lease that comes while its seam is being proven for the first time waits for that, and nobody else does."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos_mm.agent.board import Board
from chaos_mm.agent.mirror import Mirror
from chaos_mm.agent.runtime import Runtime
from chaos_mm.control.api import ControlApi
from chaos_mm.control.client import ControlClient
from chaos_mm.control.server import serve_control
from chaos_mm.controls import refusals
from chaos_mm.core.errors import LeaseConflict, NotInjectable, PointUnreachable, Stopped
from chaos_mm.core.fault import Point, Seam
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from tests.agent.conftest import TOKEN, body, until
from tests.agent.declared import FAULTS
from tests.agent.miniature import Engine

pytestmark = pytest.mark.model


class Slow(Engine):
    """Its canary comes back from the seam kv when the test lets it."""

    def __init__(self, runtime: Runtime, gated: Seam = Seam.KV) -> None:
        super().__init__(runtime)
        self.gate, self.proven, self._gated = threading.Event(), list[Seam](), gated

    def prove(self, seam: Seam) -> str:
        if seam is self._gated:
            assert self.gate.wait(20)
        self.proven.append(seam)
        return super().prove(seam)


@dataclass
class Fresh:
    """An agent that has just come up."""

    engine: Slow
    mirror: Mirror
    book: LeaseBook
    putting: list[threading.Thread] = field(default_factory=list)

    def put(self, fault: str = "kv_add") -> list[Any]:
        """Ask for a lease in a thread, and wait until it waits; the lease or the error will stand in the answer."""
        found: list[Any] = []

        def ask() -> None:
            try:
                found.append(self.book.put("a", body(fault)))
            except Exception as error:
                found.append(error)

        self.putting.append(threading.Thread(target=ask))
        self.putting[-1].start()
        until(lambda: self.mirror.proofs._wanted is FAULTS[fault].seam)
        return found

    def answer(self, found: list[Any]) -> Any:
        self.putting[-1].join(10)
        return found[0]


@pytest.fixture
def fresh(board: Board) -> Iterator[Fresh]:
    runtime = Runtime(board, FAULTS, token=TOKEN)
    engine = Slow(runtime)
    runtime.watch(engine.guard)
    mirror = Mirror(engine, board)
    limits = Limits(allow_live=True, max_rate=1.0)
    made = Fresh(engine, mirror, LeaseBook(FAULTS, point=Point.AGENT, limits=limits, actuator=mirror))
    mirror.start()
    yield made
    engine.gate.set()
    made.book.close()
    for thread in made.putting:
        thread.join(10)
    mirror.close()
    runtime.close()


def test_it_is_given_once_the_canary_is_back(fresh: Fresh):
    found = fresh.put()
    assert not found
    fresh.engine.gate.set()
    lease = fresh.answer(found)
    assert isinstance(lease, Lease) and fresh.book.live == (lease,)


def test_it_is_refused_with_the_reason_where_the_seam_is_not_passed(fresh: Fresh):
    fresh.engine.hooked = False
    found = fresh.put()
    fresh.engine.gate.set()
    with pytest.raises(NotInjectable, match="kv would not take hold"):
        raise fresh.answer(found)


def test_it_waits_less_than_a_second_and_is_refused_in_one_sentence(fresh: Fresh):
    began = time.monotonic()
    with pytest.raises(NotInjectable, match="^kv_add: its seam kv is just being proven by the agent's own canary; ask"):
        fresh.book.put("a", body("kv_add"))
    assert 0.5 < time.monotonic() - began < 0.9  # a run gives its point 0.9 s to answer
    assert fresh.book.live == ()


def test_one_that_is_stopped_or_released_while_it_waits_arms_nothing(fresh: Fresh):
    found = fresh.put()
    assert fresh.book.stop() == 0
    fresh.engine.gate.set()
    with pytest.raises(Stopped):
        raise fresh.answer(found)
    assert fresh.book.live == ()


@pytest.mark.parametrize("how", ["release", "stop and clear"])
def test_one_that_is_overtaken_while_it_waits_arms_nothing(fresh: Fresh, how: str):
    found = fresh.put()
    if how == "release":
        assert fresh.book.release("a", "r1") is None
    else:
        fresh.book.stop()
        fresh.book.clear_stop()
    fresh.engine.gate.set()
    with pytest.raises(LeaseConflict, match="was released while this request waited; nothing was injected"):
        raise fresh.answer(found)
    assert fresh.book.live == ()


def test_everybody_else_is_answered_meanwhile(fresh: Fresh):
    until(lambda: fresh.mirror.proofs.reason(Seam.ATTENTION) == "")
    fresh.book.put("other", body("attention_break", blast_radius={"selector": "live"}))
    found = fresh.put()
    began = time.monotonic()
    fresh.book.keepalive("other", "r1")
    assert fresh.book.release("other", "r1") is not None
    assert time.monotonic() - began < 0.25 and not found


def test_what_can_be_injected_is_told_without_waiting_and_says_so(fresh: Fresh):
    api = ControlApi(fresh.book, TOKEN, version="1")
    server = serve_control(api, "http://127.0.0.1:0")
    try:
        client = ControlClient(server.url, TOKEN)
        until(lambda: fresh.mirror.proofs.reason(Seam.ATTENTION) == "")
        began = time.monotonic()
        told = {one["name"]: (one["pending"], one["refusal"]) for one in client.faults()}
        assert time.monotonic() - began < 0.4
        assert told["attention_break"] == (False, "")
        assert told["kv_add"][0] and "just being proven" in told["kv_add"][1]
        # So neither a run that begins now nor a doctor refuses it: the lease itself comes later, and waits.
        assert refusals._declared(server.url, "kv_add", {"token": TOKEN})["pending"]
        fresh.engine.hooked = False
        fresh.engine.gate.set()
        until(lambda: fresh.mirror.proofs.reason(Seam.KV))
        with pytest.raises(NotInjectable, match="would not take hold"):
            refusals._declared(server.url, "kv_add", {"token": TOKEN})
    finally:
        server.close()


def test_a_client_that_gives_up_and_releases_finds_nothing_armed_later(fresh: Fresh):
    server = serve_control(ControlApi(fresh.book, TOKEN, version="1"), "http://127.0.0.1:0")
    try:
        with pytest.raises(PointUnreachable):
            ControlClient(server.url, TOKEN, timeout=0.25).put_lease("a", body("kv_add"))
        assert ControlClient(server.url, TOKEN).release("a", "r1")["gone"]
        fresh.engine.gate.set()
        until(lambda: fresh.mirror.refusal(FAULTS["kv_add"]) == "")
        time.sleep(0.1)  # the request that waited has been refused by now
        assert ControlClient(server.url, TOKEN).leases() == []
    finally:
        server.close()


def test_a_seam_that_somebody_waits_for_is_proven_next(board: Board):
    runtime = Runtime(board, FAULTS, token=TOKEN)
    engine = Slow(runtime, Seam.ATTENTION)  # the first by name
    mirror = Mirror(engine, board)
    mirror.start()
    waiting = threading.Thread(target=mirror.settle, args=(FAULTS["kv_add"],))
    waiting.start()
    until(lambda: mirror.proofs._wanted is Seam.KV)
    engine.gate.set()
    waiting.join(10)
    until(lambda: len(engine.proven) == len(engine.seams))
    assert engine.proven[:2] == [Seam.ATTENTION, Seam.KV]
    mirror.close()
    runtime.close()


def test_a_seam_that_comes_after_the_others_were_proven_is_proven_when_somebody_asks(board: Board):
    """A server tells of its cache of encoder outputs a moment after its model."""

    class Growing(Engine):
        seams = frozenset((Seam.ATTENTION,))

    runtime = Runtime(board, FAULTS, token=TOKEN)
    engine = Growing(runtime)
    mirror = Mirror(engine, board)
    mirror.start()
    until(lambda: mirror.proofs.reason(Seam.ATTENTION) == "" and not mirror.proofs._thread.is_alive())  # type: ignore[union-attr]
    engine.seams = frozenset((Seam.ATTENTION, Seam.KV))  # type: ignore[misc]
    mirror.settle(FAULTS["kv_add"])
    assert mirror.refusal(FAULTS["kv_add"]) == ""
    mirror.close()
    runtime.close()
