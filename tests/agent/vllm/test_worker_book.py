"""The request book and the taint against a small scheduler of blocks that writes down what truly stands where."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.vllm.book import RequestBook
from chaos_mm.agent.vllm.taint import Taint

SIZE, BLOCKS = 4, 12


@dataclass
class Truth:
    """One request as the scheduler of this test knows it."""

    id: str
    prompt: int
    total: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


@dataclass
class Scheduler:
    """Hands blocks out and writes each block's content: (writer, index of the block in its request).

    ``derived``: blocks with content that a hurt request, or one that took such a block as a prefix, has written.
    """

    rng: random.Random
    free: list[int] = field(default_factory=lambda: list(range(BLOCKS)))
    running: dict[str, Truth] = field(default_factory=dict)
    content: dict[int, tuple[str, int]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    hurt: set[str] = field(default_factory=set)
    derived: set[int] = field(default_factory=set)
    made: int = 0

    def step(self) -> Any:
        output = SimpleNamespace(
            finished_req_ids=self.finished,
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
            ),
            scheduled_spec_decode_tokens={},
            num_scheduled_tokens={},
        )
        self.finished = set()
        for request in list(self.running.values()):
            self._go_on(request, output)
        if self.rng.random() < 0.5:
            self._admit(output)
        for request in list(self.running.values()):
            if request.id in output.num_scheduled_tokens and request.computed + 1 > request.total:
                self._end(request)
        return output

    def _go_on(self, request: Truth, output: Any) -> None:
        count = (
            min(self.rng.randint(1, 3), request.prompt - request.computed) if request.computed < request.prompt else 1
        )
        before, fresh = request.computed, self._grow(request, count)
        if fresh is None:
            return
        cached = output.scheduled_cached_reqs
        cached.req_ids.append(request.id)
        cached.new_block_ids.append((fresh,) if fresh else None)
        cached.num_computed_tokens.append(before)
        output.num_scheduled_tokens[request.id] = count

    def _admit(self, output: Any) -> None:
        request = Truth(f"r{self.made}", prompt := self.rng.randint(2, 14), prompt + self.rng.randint(1, 6))
        other = self.rng.choice(list(self.running.values()) or [None])
        if other is not None and self.rng.random() < 0.5:  # a prefix hit: whole blocks of another one, as they stand
            hits = min(other.computed // SIZE, (request.prompt - 1) // SIZE)
            request.blocks, request.computed = other.blocks[:hits], hits * SIZE
            if self.derived & set(request.blocks):
                self.hurt.add(request.id)
        before, count = request.computed, request.prompt - request.computed
        fresh = self._grow(request, count)
        if fresh is None:
            return
        self.made += 1
        self.running[request.id] = request
        output.scheduled_new_reqs.append(
            SimpleNamespace(
                req_id=request.id,
                prompt_len=request.prompt,
                block_ids=(list(request.blocks),),
                num_computed_tokens=before,
                mm_features=[],
            )
        )
        output.num_scheduled_tokens[request.id] = count

    def _grow(self, request: Truth, count: int) -> list[int] | None:
        need = -(-(request.computed + count) // SIZE) - len(request.blocks)
        if need > len(self.free):
            return None
        fresh = [self.free.pop(self.rng.randrange(len(self.free))) for _ in range(need)]
        request.blocks.extend(fresh)
        for index in range(request.computed // SIZE, len(request.blocks)):
            self.content[request.blocks[index]] = (request.id, index)
            (self.derived.add if request.id in self.hurt else self.derived.discard)(request.blocks[index])
        request.computed += count
        return fresh

    def _end(self, request: Truth) -> None:
        del self.running[request.id]
        self.finished.add(request.id)
        held = {block for other in self.running.values() for block in other.blocks}
        self.free.extend(block for block in request.blocks if block not in held and block not in self.free)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("every", [1, 7])
def test_live_and_standing_blocks_are_what_the_scheduler_gave(seed: int, every: int) -> None:
    """``every``: how often somebody looks; steps between are taken in when they must be."""
    scheduler, book = Scheduler(random.Random(seed)), RequestBook(SIZE)
    for step in range(60):
        ended = set(scheduler.finished)
        book.update(scheduler.step())
        if step % every:
            continue
        for request in scheduler.running.values():
            flight = book.live[request.id]
            assert flight.blocks == request.blocks
            assert flight.computed + flight.scheduled == request.computed
        assert not ended & book.live.keys()
        for gone in book.finished.values():
            for index, block in enumerate(gone.blocks):
                writer, place = scheduler.content[block]
                assert place == index and (writer == gone.id or writer in known_before(book, gone.id))
    assert scheduler.made > 5


def known_before(book: RequestBook, request: str) -> set[str]:
    """Requests whose blocks a prefix hit may have given to this one: those admitted earlier."""
    return {
        other
        for other in (*book.live, *book.finished, *map("r{}".format, range(200)))
        if int(other[1:]) < int(request[1:])
    }


@pytest.mark.parametrize("seed", range(40))
def test_taint_holds_every_block_whose_content_derives_from_the_hurt_one(seed: int) -> None:
    rng = random.Random(seed)
    scheduler, book = Scheduler(rng), RequestBook(SIZE)
    taint, seen = Taint(book), 0
    for step in range(60):
        if step == 20 and scheduler.running:
            victim = rng.choice(sorted(scheduler.running))
            scheduler.hurt.add(victim)
            taint_from = book.live.get(victim)
            if taint_from is None:
                return
            # Marked at the door of the next step, as a worker does it: the scheduler has planned that step already.
            output = scheduler.step()
            book.update(output)
            if victim not in book.live:
                return
            taint.mark("lease", book.live[victim])
            taint.follow()
        else:
            book.update(scheduler.step())
            taint.follow()
        found = set(taint.blocks("lease"))
        assert scheduler.derived <= found
        seen += len(scheduler.derived)
        extra = {scheduler.content[block][0] for block in found - scheduler.derived if block in scheduler.content}
        assert extra <= scheduler.hurt, "a block of an innocent owner would be evicted"


def test_output_index_counts_what_the_step_samples() -> None:
    book = RequestBook(SIZE)
    new = SimpleNamespace(req_id="a", prompt_len=6, block_ids=([0, 1],), num_computed_tokens=0, mm_features=[])
    cached = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set())
    output = SimpleNamespace(
        finished_req_ids=set(),
        scheduled_new_reqs=[new],
        scheduled_cached_reqs=cached,
        scheduled_spec_decode_tokens={},
        num_scheduled_tokens={"a": 4},
    )
    book.update(output)
    assert book.live["a"].output_index == 0  # four of six prompt tokens: nothing is sampled
    for computed, count, index in ((4, 2, 0), (6, 1, 1), (7, 1, 2)):
        output.scheduled_new_reqs = []
        output.num_scheduled_tokens = {"a": count}
        output.scheduled_cached_reqs = SimpleNamespace(
            req_ids=["a"], new_block_ids=[None], num_computed_tokens=[computed], resumed_req_ids=set()
        )
        book.update(output)
        assert book.live["a"].output_index == index
