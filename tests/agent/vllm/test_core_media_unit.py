"""Cut media keys on stand-ins of vLLM's scheduler: which requests are cut, and when what they left is really gone."""

from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.vllm.media_keys import MediaKeySeam, MediaMask

BLOCK = 16


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
        self.live, self.struck = True, list[str]()

    def chosen(self, info: Any) -> bool:
        return self.live and info.id.startswith("canary")

    def count(self, request: str, site: str, figures: Any) -> None:
        self.struck.append(request)


class Pool:
    """Cached blocks by hash, several a hash where need be, as vLLM's BlockPool shows them."""

    def __init__(self) -> None:
        self.num_gpu_blocks = 64
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
