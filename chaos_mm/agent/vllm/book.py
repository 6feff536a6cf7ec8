"""Who is in flight and which key-value blocks they own, read from vLLM's SchedulerOutput alone.

SchedulerOutput is what every worker gets before every step, whatever the runner and the platform; the runner's own
tables are not needed for it. One key-value cache group is assumed: with several, block ids repeat between groups.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Flight", "RequestBook"]

_KEEP_FINISHED = 64  # requests whose blocks may still stand; older ones have met new owners long since


@dataclass
class Flight:
    """One request: its id as vLLM made it, tokens of its prompt, of them from the prefix cache, and its blocks.

    ``computed``: tokens whose keys and values stand before the coming step; ``scheduled``: those this step adds.
    """

    id: str
    prompt_tokens: int
    cached_tokens: int
    blocks: list[int]
    computed: int = 0
    scheduled: int = 0
    drafts: int = 0
    modalities: tuple[str, ...] = ()
    media: tuple[tuple[str, int, int], ...] = field(default=(), repr=False)
    """Modality, first token and length of each placeholder in the prompt."""

    @property
    def output_index(self) -> int:
        """Index of the output token that this step computes; 0 while the prompt is not yet computed."""
        return max(0, self.computed + self.scheduled - self.drafts - self.prompt_tokens)

    def cut(self, gone: set[int], block_size: int) -> list[int]:
        """Forget the first of these blocks and what comes after: a position without its block has no name.

        The blocks that are forgotten.
        """
        keep = next((i for i, block in enumerate(self.blocks) if block in gone), len(self.blocks))
        forgotten, self.blocks = self.blocks[keep:], self.blocks[:keep]
        self.computed = min(self.computed, keep * block_size)
        return forgotten


class RequestBook:
    """Fed with every SchedulerOutput, in order; answers between two steps and during the step that follows.

    While the same requests go on, blocks are taken in at once and token counts when somebody asks (``settle``).
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._stepping: tuple[Flight, ...] = ()
        self._ids: set[str] = set()  # of those that took part in the last step
        self._unread: Any = None  # the last step, where its counts are not taken in yet
        self._holders: dict[int, dict[str, Flight]] = {}  # block -> who lists it, ended ones too, by request id
        self._live: dict[str, Flight] = {}
        self.finished: OrderedDict[str, Flight] = OrderedDict()
        """Those that ended, without the blocks that have been given to somebody else since, oldest first."""
        self.arrivals: list[Flight] = []
        """Those whose block list is new with this step: new requests and resumed ones."""
        self.fresh: list[tuple[Flight, tuple[int, ...]]] = []
        """Blocks given out with this step and whose content is their new owner's alone."""

    @property
    def live(self) -> dict[str, Flight]:
        """Those in flight, by id."""
        self.settle()
        return self._live

    @property
    def stepping(self) -> tuple[Flight, ...]:
        """Those that take part in the coming step, in no particular order."""
        self.settle()
        return self._stepping

    def update(self, output: Any) -> None:
        """Take in what the scheduler decided for the coming step."""
        if self.arrivals or self.fresh:
            self.arrivals, self.fresh = [], []
        cached = output.scheduled_cached_reqs
        # The same requests go on: nobody comes, goes or rests. Such a step names every one of them with its count of
        # computed tokens, so no count is lost by skipping one.
        changed = output.scheduled_new_reqs or output.finished_req_ids or cached.resumed_req_ids
        if not changed and output.num_scheduled_tokens.keys() == self._ids:
            self._unread = output
            if any(cached.new_block_ids):
                self._grow(cached)
            return
        self.settle()
        for flight in self._stepping:  # the step before this one is done
            flight.computed, flight.scheduled = flight.computed + flight.scheduled, 0
        for request_id in output.finished_req_ids:
            self._finish(request_id)
        for new in output.scheduled_new_reqs:
            self._admit(new)
        self._continue(cached)
        self._step(output)
        self._ids = set(output.num_scheduled_tokens)

    def settle(self) -> None:
        """Bring the token counts of every flight up to the coming step."""
        output, self._unread = self._unread, None
        if output is not None:
            self._count(output.scheduled_cached_reqs)
            self._step(output)

    def filled(self, flight: Flight) -> tuple[int, ...]:
        """Its blocks that hold at least one computed token, in order."""
        return tuple(flight.blocks[: -(-flight.computed // self.block_size)])

    def owners(self, block: int) -> tuple[Flight, ...]:
        """The live requests that hold this block."""
        return tuple(flight for name, flight in self._holders.get(block, {}).items() if name in self._live)

    def shared(self, flight: Flight) -> set[int]:
        """Blocks that another live request holds."""
        return {block for other in self._live.values() if other is not flight for block in other.blocks}

    def _finish(self, request_id: str) -> None:
        flight = self._live.pop(request_id, None)
        if flight is None:
            return
        self._drop(self.finished.pop(request_id, None))
        self.finished[request_id] = flight
        while len(self.finished) > _KEEP_FINISHED:
            self._drop(self.finished.popitem(last=False)[1])

    def _admit(self, new: Any) -> None:
        flight = Flight(
            new.req_id,
            new.prompt_len,
            new.num_computed_tokens,
            list(new.block_ids[0]) if new.block_ids else [],
            computed=new.num_computed_tokens,
            modalities=tuple(sorted({feature.modality for feature in new.mm_features})),
            media=tuple((f.modality, f.mm_position.offset, f.mm_position.length) for f in new.mm_features),
        )
        self._drop(self._live.get(flight.id))  # runner V2 calls a resumed request new
        self._live[flight.id] = flight
        self._arrive(flight)

    def _arrive(self, flight: Flight) -> None:
        self.arrivals.append(flight)
        hits = flight.computed // self.block_size
        for block in flight.blocks[:hits]:
            self._holders.setdefault(block, {})[flight.id] = flight
        self._given(flight, flight.blocks[hits:])

    def _continue(self, cached: Any) -> None:
        self._count(cached)
        self._grow(cached)

    def _count(self, cached: Any) -> None:
        for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            flight = self._live.get(request_id)
            if flight is not None:
                flight.computed = computed

    def _grow(self, cached: Any) -> None:
        for request_id, given in zip(cached.req_ids, cached.new_block_ids, strict=True):
            resumed = request_id in cached.resumed_req_ids  # its blocks were taken from it and are all new
            flight = self._live.get(request_id) if given or resumed else None
            if flight is None:
                continue
            fresh = list(given[0]) if given else []
            if resumed:
                self._let_go(flight, flight.blocks)
                flight.blocks = fresh
                self._arrive(flight)
            else:
                flight.blocks.extend(fresh)
                self._given(flight, fresh)

    def _given(self, flight: Flight, fresh: Sequence[int]) -> None:
        """These blocks are filled anew by ``flight``: whoever else lists one has ended, or was preempted."""
        if not fresh:
            return
        gone = set(fresh)
        self.fresh.append((flight, tuple(fresh)))
        before = {name: other for block in fresh for name, other in self._holders.get(block, {}).items()}
        for other in before.values():
            if other is not flight:
                self._let_go(other, other.cut(gone, self.block_size))
        for block in fresh:
            self._holders.setdefault(block, {})[flight.id] = flight

    def _drop(self, flight: Flight | None) -> None:
        if flight is not None:
            self._let_go(flight, flight.blocks)

    def _let_go(self, flight: Flight, blocks: Sequence[int]) -> None:
        """It lists these blocks no longer; one that took its id since keeps its own."""
        for block in blocks:
            found = self._holders.get(block, {})
            if found.get(flight.id) is flight:
                del found[flight.id]
            if not found:
                self._holders.pop(block, None)

    def _step(self, output: Any) -> None:
        drafts, counts = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens
        stepping = []
        for request_id, count in counts.items():
            flight = self._live.get(request_id)
            if flight is not None:
                flight.scheduled = count
                flight.drafts = len(drafts[request_id]) if drafts and request_id in drafts else 0
                stepping.append(flight)
        self._stepping = tuple(stepping)
