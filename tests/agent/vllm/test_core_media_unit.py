"""Cut media keys on stand-ins of vLLM's scheduler: which requests are cut, and when what they left is really gone."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.board import Board, new_nonce
from chaos_mm.agent.layout import Column
from chaos_mm.agent.runtime import Runtime
from chaos_mm.agent.vllm import process
from chaos_mm.agent.vllm.core import CoreAgent
from chaos_mm.agent.vllm.media_keys import MediaKeySeam, MediaMask
from chaos_mm.core.canary import canary_id, canary_key
from tests.agent.vllm.test_core_unit import engine

BLOCK = 16
TOKEN = "t" * 43
CANARY = canary_id(canary_key(TOKEN), "r1", 3)


@dataclass
class Feature:
    """Of vLLM's MultiModalFeatureSpec, what the seam looks at."""

    identifier: str
    mm_hash: str | None
    mm_position: Any = field(default_factory=lambda: SimpleNamespace(offset=20))
    modality: str = "image"


class Lease:
    """Stands for ``Armed``: picks requests whose id starts with ``canary``."""

    def __init__(self) -> None:
        self.live, self.struck, self.failures = True, list[str](), list[str]()

    def chosen(self, info: Any) -> bool:
        return self.live and info.id.startswith("canary")

    def count(self, request: str, site: str, figures: Any) -> None:
        self.struck.append(request)

    def broke(self, request: str, error: Exception) -> None:
        self.failures.append(f"{request}: {error}")


class Pool:
    """Cached blocks by hash, several a hash where need be, as vLLM's BlockPool shows them."""

    def __init__(self) -> None:
        self.num_gpu_blocks, self.hash_block_size = 64, BLOCK
        self.blocks = [SimpleNamespace(block_id=number, block_hash=None) for number in range(64)]

    def put(self, block_hash: str, *numbers: int) -> None:
        for number in numbers:
            self.blocks[number].block_hash = block_hash

    def get_cached_block(self, block_hash: str, groups: list[int]) -> list[Any] | None:
        found = [block for block in self.blocks if block.block_hash == block_hash]
        return found[:1] or None


@pytest.fixture
def scheduler() -> Any:
    pool = Pool()

    def evict(numbers: set[int]) -> None:
        for number in numbers:
            pool.blocks[number].block_hash = None

    return SimpleNamespace(
        requests={},
        kv_cache_manager=SimpleNamespace(block_pool=pool, evict_blocks=evict),
        encoder_cache_manager=SimpleNamespace(
            num_free_slots=0, cached={}, num_embeds_by_hash={}, freeable=OrderedDict(), freed=[]
        ),
    )


def asked(name: str, *keys: str, whole: bool = True) -> Any:
    features = [Feature(key, key if whole else None) for key in keys]
    return SimpleNamespace(request_id=name, mm_features=features or None)


def seam_of(scheduler: Any) -> tuple[MediaKeySeam, MediaMask, Lease]:
    seam, lease = MediaKeySeam(scheduler, BLOCK, lambda prefix: 0), Lease()
    mask = seam.for_lease(lease)  # type: ignore[arg-type]
    mask.mask(4, b"salt")
    return seam, mask, lease


def test_keys_of_canaries_become_few_and_nobody_elses_change(scheduler: Any):
    seam, _, lease = seam_of(scheduler)
    cut = [asked(f"canary{n}", f"key{n}") for n in range(100)]
    for request in cut:
        seam.cut_keys(request)
    user = asked("user", "key1")
    assert seam.cut_keys(user) is None and user.mm_features[0].identifier == "key1"
    keys = {request.mm_features[0].identifier for request in cut}
    assert len(keys) == 16 and len({key.rpartition("-")[0] for key in keys}) == 1
    assert all(request.mm_features[0].mm_hash == f"key{n}" for n, request in enumerate(cut))
    assert len(lease.struck) == 100


def test_the_same_picture_gets_the_same_key_and_another_process_or_lease_another(scheduler: Any):
    keys = []
    for seam, mask in ((seam_of(scheduler)[:2]) for _ in range(2)):
        first, second = asked("canary1", "key"), asked("canary2", "key")
        seam.cut_keys(first), seam.cut_keys(second)
        assert first.mm_features[0].identifier == second.mm_features[0].identifier
        keys.append(mask.prefix)
    assert len(set(keys)) == 2


@pytest.mark.parametrize("request_", [asked("canary1"), asked("canary1", "key", whole=False)])
def test_requests_without_media_or_with_one_key_for_all_caches_are_left_alone(scheduler: Any, request_: Any):
    seam, _, lease = seam_of(scheduler)
    assert seam.cut_keys(request_) is None and not lease.struck


def test_what_a_request_left_counts_until_it_is_gone(scheduler: Any):
    seam, mask, lease = seam_of(scheduler)
    request = asked("canary1", "key")
    assert seam.cut_keys(request) is mask
    lease.live = False
    mask.restore()
    assert seam.flush()["in_use"] == 1, "it is still on its way to the scheduler"
    request.block_hashes = ["clean", "cut", "behind"]
    seam.made(mask, request)
    scheduler.requests["canary1"] = request
    seam.arrived("canary1")
    key = request.mm_features[0].identifier
    book, pool = scheduler.encoder_cache_manager, scheduler.kv_cache_manager.block_pool
    book.cached[key], book.num_embeds_by_hash[key] = {"canary1"}, 16
    pool.put("clean", 1), pool.put("cut", 2, 7), pool.put("behind", 3), pool.put("user's", 4)
    found = seam.flush()
    assert (found["in_use"], found["left_entries"], found["flushed_blocks"]) == (1, 1, 3)
    assert [block.block_id for block in pool.blocks if block.block_hash] == [1, 4]
    del scheduler.requests["canary1"]
    book.freeable[key] = 16
    found = seam.flush()
    assert (found["in_use"], found["left_entries"], found["flushed_entries"]) == (0, 0, 1)
    assert book.freed == [key] and seam.flush()["flushed_entries"] == 0


def test_a_request_that_vllm_refused_is_not_waited_for(scheduler: Any):
    seam, mask, lease = seam_of(scheduler)
    seam.cut_keys(asked("canary1", "key"))
    lease.live = False
    seam.lost(mask, "canary1")
    assert mask.restore()["in_use"] == 0


class Unreadable(Feature):
    """A feature whose key cannot be replaced, as a frozen one."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "identifier" and "identifier" in self.__dict__ and value.startswith("cmm-"):
            raise AttributeError("cannot assign to field 'identifier'")
        super().__setattr__(name, value)


@pytest.mark.parametrize("where", ["second key", "count"])
def test_keys_are_cut_all_or_none_and_a_request_with_whole_keys_is_not_followed(scheduler: Any, where: str):
    seam, mask, lease = seam_of(scheduler)
    request = asked("canary1", "one", "two")
    if where == "count":
        lease.count = lambda *arguments: [][0]  # type: ignore[method-assign]
    else:
        request.mm_features[1] = Unreadable("two", "two")
    with pytest.raises((IndexError, AttributeError)):
        seam.cut_keys(request)
    assert [feature.identifier for feature in request.mm_features] == ["one", "two"]
    assert lease.failures and not seam.expects
    lease.live = False
    assert mask.restore()["in_use"] == 0, "nothing is waited for"


def test_a_lease_that_ends_while_vllm_makes_the_request_waits_for_it_and_flushes_what_it_stored(scheduler: Any):
    seam, mask, lease = seam_of(scheduler)
    request = asked("canary1", "key")
    seam.cut_keys(request)
    lease.live = False
    assert mask.restore()["in_use"] == 1
    late = asked("canary2", "key")
    assert seam.cut_keys(late) is None and late.mm_features[0].identifier == "key"
    request.block_hashes = ["clean", "cut"]
    seam.made(mask, request)
    assert seam.flush()["in_use"] == 1, "made, and not yet with the scheduler"
    scheduler.requests["canary1"] = request
    seam.arrived("canary1")
    scheduler.kv_cache_manager.block_pool.put("cut", 5)
    assert (seam.flush()["flushed_blocks"], seam.flush()["in_use"]) == (1, 1)
    del scheduler.requests["canary1"]
    assert set(seam.flush().values()) == {0} and seam.flush_one(mask)["in_use"] == 0
    assert not seam._masks, "and is forgotten"


@pytest.fixture
def core(scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreAgent]:
    """The agent of an engine core with that scheduler, a lease on its board and the first tick done."""
    board = Board.create(tmp_path / "board", new_nonce())
    runtime = Runtime(board, token=TOKEN, process="engine_core")
    monkeypatch.setattr(process, "runtime", lambda name: runtime)
    stand_in = engine()
    vars(stand_in.scheduler.encoder_cache_manager).update(vars(scheduler.encoder_cache_manager))
    stand_in.scheduler.requests, stand_in.scheduler.kv_cache_manager = {}, scheduler.kv_cache_manager
    monkeypatch.setattr("chaos_mm.agent.vllm.core.step_seconds", lambda: 300.0)
    stand_in.collective_rpc = lambda question, timeout, arguments: [[0, 0]]
    agent = CoreAgent(stand_in)
    spec = {"name": "lease", "fault": "media_key_collision", "params": {"bits": 8}, "seed": 1, "mode": "inject"}
    radius = {"rate": 1.0, "selector": "canary", "limit": 0}
    board.publish(0, 1, {**spec, "owner": "r1", "radius": radius}, time.monotonic_ns() + 60 * 10**9)
    agent.tick()
    yield agent
    runtime.close()
    board.close()


def made_of(request: Any, **fields: Any) -> Any:
    """vLLM's ``Request`` of that ``EngineCoreRequest``."""
    return SimpleNamespace(**{**vars(request), "block_hashes": ["h"], **fields})


def test_a_cut_request_goes_on_and_is_followed(core: CoreAgent):
    request = asked(CANARY, "key")
    assert core.add(lambda it: (made_of(it), 0), request)[0].mm_features[0].identifier.startswith("cmm-")
    assert core.media.expects
    user = asked("somebody", "key")
    assert core.add(lambda it: (made_of(it), 0), user)[0].mm_features[0].identifier == "key"


@pytest.mark.parametrize("fails", ["vLLM", "following it"])
def test_a_cut_request_that_cannot_be_followed_is_refused_and_leaves_nothing(core: CoreAgent, fails: str):
    def real(request: Any) -> Any:
        if fails == "vLLM":
            raise ValueError("a grammar that is none")
        made = made_of(request)
        del made.block_hashes
        return made, 0

    with pytest.raises((ValueError, AttributeError)):
        core.add(real, asked(CANARY, "key"))
    assert not core.media.expects
    assert core.runtime.column(0).get(Column.ERRORED) == (fails != "vLLM")
    core.runtime.page.withdraw(0)
    core.tick()
    assert core.runtime.column(0).state == Column.CLEAN
    assert set(core.flush_media().values()) == {0}


def test_a_request_whose_keys_cannot_be_cut_goes_on_with_whole_ones(core: CoreAgent):
    request = asked(CANARY, "key")
    request.mm_features[0] = Unreadable("key", "key")
    assert core.add(lambda it: (made_of(it), 0), request)[0].mm_features[0].identifier == "key"
    column = core.runtime.column(0)
    assert (column.get(Column.ERRORED), column.get(Column.APPLIED)) == (1, 0) and not core.media.expects
