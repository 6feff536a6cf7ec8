"""Key-value strikes, protection and undo on torch tensors: a real board, runtime and faults, and step outputs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import Column
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm.book import RequestBook
from chaos_mm.agent.vllm.flights import Flights
from chaos_mm.agent.vllm.kv import Blocks, RequestKv
from chaos_mm.agent.vllm.kv_seam import KvSeam
from chaos_mm.agent.vllm.taint import Taint
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.errors import InvalidParams
from chaos_mm.core.fault import Seam
from chaos_mm.faults import catalogue

SIZE, BLOCKS, HEADS, CONTENT = 4, 8, 2, 6
TOKEN = "t" * 43
torch.set_num_threads(1)


def canary(n: int) -> str:
    return f"chatcmpl-{canary_id(canary_key(TOKEN), 'r1', n)}-0123abcd"


@dataclass
class Worker:
    """A worker without vLLM: tensors, the book and the seam, stepped by hand."""

    board: Board
    runtime: Runtime
    tensors: list[Any]
    seam: KvSeam
    serial: int = 0

    def step(self, new: Any = (), go_on: Any = (), finished: Any = (), seen: int | None = None) -> None:
        """``new``: (id, prompt, blocks, computed, scheduled); ``go_on``: (id, fresh blocks, computed, scheduled).

        ``seen``: generation of the board that the scheduler knew; by default what there is now.
        """
        output = SimpleNamespace(
            finished_req_ids=set(finished),
            scheduled_new_reqs=[
                SimpleNamespace(req_id=i, prompt_len=p, block_ids=(list(b),), num_computed_tokens=c, mm_features=[])
                for i, p, b, c, _ in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[g[0] for g in go_on],
                new_block_ids=[(list(g[1]),) if g[1] else None for g in go_on],
                num_computed_tokens=[g[2] for g in go_on],
                resumed_req_ids=set(),
            ),
            scheduled_spec_decode_tokens={},
            num_scheduled_tokens={**{n[0]: n[4] for n in new}, **{g[0]: g[3] for g in go_on}},
            chaos_mm_generation=self.board.generation if seen is None else seen,
        )
        self.seam.flights.update(output)
        self.seam.protect()
        self.runtime.tick()
        if self.seam.taint.since:
            self.seam.taint.follow()
        if self.runtime.armed():
            self.seam.strike()

    def arm(self, fault: str, name: str = "lease", **params: Any) -> int:
        self.serial += 1
        spec = {"name": name, "fault": fault, "params": catalogue()[fault].bind(params), "seed": 1, "mode": "inject"}
        radius = {"rate": 1.0, "selector": "canary", "limit": 0}
        self.board.publish(
            self.serial, self.serial, {**spec, "owner": "r1", "radius": radius}, time.monotonic_ns() + 10**11
        )
        return self.serial

    def release(self, slot: int) -> None:
        self.board.withdraw(slot)

    def block(self, number: int) -> Any:
        return torch.stack([tensor[number] for tensor in self.tensors]).clone()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    board = Board.create(tmp_path / "board", new_nonce())
    runtime = Runtime(board, token=TOKEN, process="Worker")
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(BLOCKS, HEADS, SIZE, 2 * CONTENT, generator=generator) for _ in range(3)]
    book = RequestBook(SIZE)
    flights = Flights(runtime, book, SimpleNamespace())
    seam = KvSeam(flights, Blocks(tensors, BLOCKS, SIZE, "CPU_ATTN"), Taint(book))
    yield Worker(board, runtime, tensors, seam)
    runtime.close()
    board.close()


def test_only_the_canarys_own_blocks_change_and_come_back(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.arm("kv_cache_noise", sigma=1.0)
    worker.step(new=[(canary(1), 6, [2, 3], 0, 6), ("chatcmpl-user-0123abcd", 6, [4, 5], 0, 6)])
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS)), "nothing is computed yet"
    worker.step(go_on=[(canary(1), (), 6, 1), ("chatcmpl-user-0123abcd", (), 6, 1)])
    changed = [i for i in range(BLOCKS) if not worker.block(i).equal(before[i])]
    assert changed == [2, 3]
    worker.tensors[0][3, :, 3, :] = 7.0  # the step fills the slot that was free
    worker.release(1)
    worker.step(go_on=[(canary(1), (), 7, 1)])
    assert worker.block(2).equal(before[2])
    assert worker.tensors[0][3, :, 3, :].eq(7.0).all()
    rest = worker.block(3)
    rest[0, :, 3, :] = before[3][0, :, 3, :]
    assert rest.equal(before[3])


def test_a_bystander_that_finds_a_hurt_block_in_the_prefix_cache_reads_what_stood_there(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.arm("kv_cache_noise", sigma=1.0)
    worker.step(new=[(canary(1), 9, [1, 2, 3], 0, 9)])
    worker.step(go_on=[(canary(1), (), 9, 1)])
    assert not worker.block(1).equal(before[1])
    worker.step(go_on=[(canary(1), (), 10, 1)], new=[("user", 9, [1, 6, 7], 4, 5)])
    assert worker.block(1).equal(before[1]), "the shared block is whole before anything is computed"
    assert not worker.block(2).equal(before[2]), "what nobody else reads stays hurt"


@pytest.mark.parametrize("armed_before", [False, True])
def test_a_step_that_was_scheduled_before_a_lease_came_is_left_alone(worker: Worker, armed_before: bool) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    if armed_before:
        worker.arm("attention_delay", "other", seconds=0.0)
    worker.step(new=[(canary(1), 9, [1, 2, 3], 0, 9)])
    known = worker.board.generation if armed_before else -1  # where nothing was armed a step says nothing
    slot = worker.arm("kv_cache_zero", share=1.0)
    worker.step(go_on=[(canary(1), (), 9, 1)], new=[(canary(2), 5, [4, 5], 0, 5)], seen=known)
    column = worker.runtime.column(slot)
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS)) and column.get(Column.MATCHED) == 0
    worker.step(go_on=[(canary(1), (), 10, 1), (canary(2), (), 5, 1)])
    assert [i for i in range(BLOCKS) if not worker.block(i).equal(before[i])] == [1, 2, 3, 4, 5]


def test_what_a_request_filled_before_the_lease_may_be_found_whichever_step_it_came_with(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.seam.undo.limit_bytes = 0
    slot = worker.arm("kv_cache_zero", share=1.0)
    worker.step(new=[(canary(1), 5, [1, 2], 0, 5)], seen=worker.board.generation - 1)
    worker.step(go_on=[(canary(1), (), 5, 1)])
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS)), "beyond the cap nothing cached may be hurt"
    assert worker.runtime.column(slot).get(Column.ERRORED) == 1


def test_a_new_owner_of_a_freed_block_gets_it_clean_and_keeps_what_it_writes(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.arm("kv_cache_nonfinite", share=0.5)
    worker.step(new=[(canary(1), 9, [1, 2, 3], 0, 9)])
    worker.step(go_on=[(canary(1), (), 9, 1)])
    hurt = [i for i in range(BLOCKS) if not worker.block(i).isfinite().all()]
    assert hurt
    worker.step(new=[("user", 9, [3, 2, 5], 0, 9)], finished=[canary(1)])
    for block in (2, 3):
        assert worker.block(block).equal(before[block]), "no number that is none reaches another's block"
    for tensor in worker.tensors:
        tensor[2:4] = torch.nan  # whatever the new owner writes, be it what the fault wrote
    owned = [worker.block(2), worker.block(3)]
    worker.release(1)
    worker.step(go_on=[("user", (), 9, 1)])
    assert torch.equal(owned[0].nan_to_num(9), worker.block(2).nan_to_num(9))
    assert torch.equal(owned[1].nan_to_num(9), worker.block(3).nan_to_num(9))
    assert worker.block(1).equal(before[1])


def test_what_is_no_number_and_derived_from_damage_never_reaches_the_next_owner(worker: Worker) -> None:
    worker.arm("kv_cache_nonfinite", share=0.5)
    worker.step(new=[(canary(1), 9, [1, 2, 3], 0, 9)])
    worker.step(go_on=[(canary(1), (), 9, 1)])
    for tensor in worker.tensors:
        tensor[3, :, 1:3] = torch.nan  # what the engine itself computes from the damage: no byte of the fault's
    worker.step(new=[("user", 5, [3, 6], 0, 5)], finished=[canary(1)])
    assert worker.block(3).isfinite().all(), "0 times NaN is NaN in slots that the new owner has not filled"


def test_what_another_live_request_holds_is_left_out(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.step(new=[("user", 9, [1, 2, 3], 0, 9)])
    worker.arm("kv_cache_zero")
    worker.step(new=[(canary(1), 9, [1, 2, 6], 8, 1)], go_on=[("user", (), 9, 1)])
    worker.step(go_on=[(canary(1), (), 9, 1), ("user", (), 10, 1)])
    changed = [i for i in range(BLOCKS) if not worker.block(i).equal(before[i])]
    assert changed == [6]


def test_an_undo_that_does_not_bring_back_what_stood_there_says_so(worker: Worker) -> None:
    worker.arm("kv_cache_zero")
    worker.step(new=[(canary(1), 8, [1, 2], 0, 8)])
    worker.step(go_on=[(canary(1), [3], 8, 1)])
    (armed,) = worker.runtime.leases(Seam.KV)
    worker.tensors[1][1, 0, 0, 0] = 5.0  # somebody else writes into a block that was full
    worker.release(1)
    worker.step(go_on=[(canary(1), (), 9, 1)])
    assert "does not hold again" in armed.failure


def test_beyond_the_cap_no_block_is_hurt_that_somebody_may_find_in_the_prefix_cache(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.seam.undo.limit_bytes = 0
    worker.step(new=[("user", 5, [1, 2], 0, 5)])
    worker.step(new=[(canary(1), 5, [3, 4], 0, 5)], finished=["user"])  # before the lease: they may be cached
    slot = worker.arm("kv_cache_zero", share=1.0)
    worker.step(go_on=[(canary(1), (), 5, 1)])
    (armed,) = worker.runtime.leases(Seam.KV)
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS))
    # One that comes under the lease shares what it was given from the cache, and nothing that it fills itself.
    worker.step(new=[(canary(2), 5, [1, 5], 4, 1)], go_on=[(canary(1), (), 6, 1)])
    worker.step(go_on=[(canary(2), (), 5, 1)])
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS)), "refused as a whole: a hit is among them"
    worker.step(new=[(canary(3), 5, [6, 7], 0, 5)], go_on=[(canary(2), (), 6, 1)])
    worker.step(go_on=[(canary(3), (), 5, 1)])
    assert [i for i in range(BLOCKS) if not worker.block(i).equal(before[i])] == [6, 7]
    worker.release(slot)
    worker.step(go_on=[(canary(3), (), 6, 1)])
    assert worker.seam.taint.blocks("r1/lease") == (6, 7) and not armed.failure


def test_a_step_that_could_not_be_read_ends_all_harm(worker: Worker) -> None:
    before = [worker.block(i) for i in range(BLOCKS)]
    worker.arm("kv_cache_zero", share=1.0)
    worker.step(new=[(canary(1), 8, [1, 2], 0, 8)])
    worker.step(go_on=[(canary(1), [3], 8, 1)])
    assert not worker.block(1).equal(before[1])
    worker.seam.flights.lost = True
    worker.seam.put_back()
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS))
    worker.step(new=[(canary(2), 8, [5, 6], 0, 8)])
    worker.step(go_on=[(canary(2), [7], 8, 1)])
    assert all(worker.block(i).equal(before[i]) for i in range(BLOCKS)), "nobody is chosen any more"


def view(worker: Worker, flight_id: str = "a", backend: str = "CPU_ATTN", num_blocks: int = BLOCKS) -> RequestKv:
    blocks = Blocks(worker.tensors, num_blocks, SIZE * (BLOCKS // num_blocks), backend)
    book = RequestBook(blocks.block_size)
    worker.seam.flights.book = worker.seam.book = book
    worker.step(new=[(flight_id, 7, [1, 3], 0, 7)])
    worker.step(go_on=[(flight_id, (), 7, 1)])
    return RequestKv(blocks, book, book.live[flight_id], lambda *_: None, lambda _: [])


@pytest.mark.parametrize(
    ("backend", "keys"),
    [
        ("CPU_ATTN", lambda block: block.reshape(HEADS, 2 * SIZE, CONTENT)[:, :SIZE]),
        ("FLASH_ATTN", lambda block: block[..., :CONTENT]),
    ],
)
def test_parts_are_live_views_of_the_halves(worker: Worker, backend: str, keys: Callable[[Any], Any]) -> None:
    found = {(p.layer, p.name, p.place): p.tensor for p in view(worker, backend=backend).parts()}
    assert found.keys() == {(la, name, place) for la in range(3) for name in ("keys", "values") for place in (0, 1)}
    for (layer, name, place), tensor in found.items():
        block = worker.tensors[layer][(1, 3)[place]]
        assert tensor.data_ptr() >= block.data_ptr() and tensor.shape[0] == HEADS
        if name == "keys":
            assert tensor.equal(keys(block))
        tensor.fill_(float(len(name)))
    assert worker.tensors[2][1].numel() == worker.tensors[2][1].eq(4).sum() + worker.tensors[2][1].eq(6).sum()


def test_words_of_parts(worker: Worker) -> None:
    kv = view(worker)
    assert [(p.layer, p.place) for p in kv.parts(layers="-1", positions="0-3", which="keys")] == [(2, 0)]
    assert [p.place for p in kv.parts(layers="0", positions="last:1", which="values")] == [1]
    assert [p.place for p in kv.parts(layers="0", positions="3-4", which="values")] == [0, 1]
    (one,) = kv.parts(layers="1", heads="1", positions="0", which="keys")
    assert one.tensor.shape == (1, SIZE, CONTENT) and one.tensor.data_ptr() != worker.tensors[1][1].data_ptr()
    with pytest.raises(InvalidParams, match="layers='7'"):
        list(kv.parts(layers="7"))
    with pytest.raises(InvalidParams, match="which='both sides'"):
        list(kv.parts(which="both sides"))


def test_a_scheduler_block_of_several_kernel_blocks(worker: Worker) -> None:
    kv = view(worker, num_blocks=BLOCKS // 2)
    found = [p.tensor.data_ptr() for p in kv.parts(layers="0", which="keys")]
    assert found == [worker.tensors[0][i].data_ptr() for i in (2, 3)], "7 tokens: both pieces of the first block of 8"


def test_layers_that_share_a_tensor_are_one(worker: Worker) -> None:
    shared = [worker.tensors[0], worker.tensors[1], worker.tensors[0]]
    assert Blocks(shared, BLOCKS, SIZE, "CPU_ATTN").layers == 2
