"""Strikes of a worker: which of them leave a seam as an error, and which steps a lease may act in, at every seam."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import SEAMS, Column, WorkerWord
from chaos_mm.agent.meant import is_meant, meant
from chaos_mm.agent.measuring import Measures
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm.attention import Layer
from chaos_mm.agent.vllm.attention_seam import AttentionSeam
from chaos_mm.agent.vllm.book import RequestBook
from chaos_mm.agent.vllm.embedding_seam import EmbeddingSeam
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.taint import Taint
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Seam
from chaos_mm.faults import catalogue

TOKEN = "t" * 43
CANARY = f"chatcmpl-{canary_id(canary_key(TOKEN), 'r1', 1)}-0123abcd"
USER = "chatcmpl-somebody-0123abcd"
CALL = SimpleNamespace(layer=0, layers=1, output_index=0, survives_raise=False, state={}, requests=(CANARY,))


@pytest.fixture
def flights(tmp_path: Path) -> Iterator[Flights]:
    board = Board.create(tmp_path / "board", new_nonce())
    runtime = Runtime(board, token=TOKEN, process="Worker")
    runner = SimpleNamespace(input_batch=SimpleNamespace(req_ids=[CANARY, USER]))
    yield Flights(runtime, RequestBook(4), runner)
    runtime.close()
    board.close()


def arm(flights: Flights, fault: str, **params: Any) -> Armed:
    found = catalogue()[fault]
    spec = {"name": "lease", "fault": fault, "params": found.bind(params), "seed": 1, "mode": "inject", "owner": "r1"}
    radius = {"rate": 1.0, "selector": "canary", "limit": 0}
    flights.runtime.page.publish(0, 1, {**spec, "radius": radius}, time.monotonic_ns() + 60 * 10**9)
    assert found.seam is not None
    (armed,) = flights.runtime.leases(found.seam)
    return armed


def step(flights: Flights, seen: int | None) -> None:
    """A canary and a user, two tokens each; ``seen``: generation that the scheduler knew, None as without our door."""
    new = [
        SimpleNamespace(req_id=name, prompt_len=2, block_ids=([number],), num_computed_tokens=0, mm_features=[])
        for number, name in enumerate((CANARY, USER), 1)
    ]
    cached = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set())
    output = SimpleNamespace(
        finished_req_ids=set(),
        scheduled_new_reqs=new,
        scheduled_cached_reqs=cached,
        scheduled_spec_decode_tokens={},
        num_scheduled_tokens={CANARY: 2, USER: 2},
    )
    if seen is not None:
        output.chaos_mm_generation = seen
    flights.update(output)


def fired(flights: Flights, seam: Seam) -> int:
    return flights.runtime.page.workers()[0].get(WorkerWord.FIRED + SEAMS.index(seam))


def test_a_faults_own_error_leaves_the_seam(flights: Flights):
    armed = arm(flights, "attention_error")
    step(flights, flights.runtime.page.generation)
    (flight,) = flights.chosen(armed)
    with pytest.raises(RuntimeError, match="CUDA") as left:
        flights.strike(armed, CALL, flight, "attention", "layer 0")
    assert is_meant(left.value)
    assert flights.runtime.column(0).get(Column.APPLIED) == 1


def test_an_error_in_a_fault_is_counted_and_goes_no_further(flights: Flights):
    armed = arm(flights, "attention_error")
    step(flights, flights.runtime.page.generation)
    (flight,) = flights.chosen(armed)
    flights.strike(armed, object(), flight, "attention", "layer 0")  # which has no layer to ask for
    column = flights.runtime.column(0)
    assert (column.get(Column.APPLIED), column.get(Column.ERRORED)) == (0, 1)
    assert flights.chosen(armed) == [], "and it is not tried again"


def test_an_error_of_our_own_stays_in_the_log(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    armed = arm(flights, "attention_error")
    step(flights, flights.runtime.page.generation)
    (flight,) = flights.chosen(armed)

    def broken(request: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(flights.runtime, "identify", broken)
    flights.strike(armed, CALL, flight, "attention", "layer 0")
    assert "lease lease: a strike failed" in caplog.text


def test_an_error_of_ours_stays_where_it_was_while_another_thread_s_lease_raises_what_was_meant(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
):
    armed = arm(flights, "attention_error")
    step(flights, flights.runtime.page.generation)
    (flight,) = flights.chosen(armed)

    def both(*_: Any) -> None:
        with contextlib.suppress(RuntimeError):
            raise meant(RuntimeError("of the other thread"))
        raise ZeroDivisionError

    monkeypatch.setattr(armed, "strike", both)
    flights.strike(armed, CALL, flight, "attention", "layer 0")


@pytest.mark.parametrize("age", [None, -1, 0, 1])
def test_a_lease_acts_in_steps_that_were_scheduled_under_it(flights: Flights, age: int | None):
    armed = arm(flights, "attention_error")
    step(flights, None if age is None else armed.generation + age)
    acts = age is not None and age >= 0
    assert flights.acts(armed) is acts and [flight.id for flight in flights.chosen(armed)] == [CANARY] * acts
    flights.lost = True
    assert not flights.acts(armed)


@pytest.mark.parametrize("seen", [0, 1])
def test_attention_of_an_older_step_is_left_alone(flights: Flights, seen: int):
    seam = AttentionSeam(flights, {"layer": Layer(0, 1, 4, "X")}, Taint(flights.book))
    flights.runtime.declare(Seam.ATTENTION)
    armed = arm(flights, "attention_error")
    step(flights, armed.generation if seen else None)
    seam.step()
    layer, calls = SimpleNamespace(layer_name="layer"), list[Any]()

    def call() -> None:
        seam.around(lambda *args, **kwargs: calls.append(args), None, layer, (0, 0, 0, 0, object()), {})

    if seen:
        with pytest.raises(RuntimeError, match="CUDA"):
            call()
    else:
        call()
    assert len(calls) == 1 - seen and fired(flights, Seam.ATTENTION) == seen


@pytest.mark.parametrize("seen", [0, 1])
def test_an_embedding_of_an_older_step_is_left_alone_and_learnt_from(flights: Flights, seen: int):
    seam = EmbeddingSeam(flights, "projector", Taint(flights.book), Measures(frozenset()))
    armed = arm(flights, "embedding_shift", shift_sigma=8.0)
    step(flights, armed.generation if seen else None)
    item = torch.arange(8.0).reshape(2, 4)
    item.modality = "image"  # type: ignore[attr-defined]
    mask = torch.tensor([True, True, False, False])
    (merged,) = seam.see([item], mask)
    assert torch.equal(merged, item) is (seen == 0)
    assert fired(flights, Seam.EMBEDDING) == seen
    assert seam._clean["image"].count == 1


def test_a_probe_passes_the_seams_before_there_ever_was_a_lease(flights: Flights):
    flights.runtime.page.probe(time.monotonic_ns() + 10**10)
    seam = AttentionSeam(flights, {"layer": Layer(0, 1, 4, "X")}, Taint(flights.book))
    for seen in (None, 0):
        step(flights, seen)
        seam.around(lambda *_: None, None, SimpleNamespace(layer_name="layer"), (0, 0, 0, 0, object()), {})
    assert fired(flights, Seam.ATTENTION) == 1
