"""The engine core's seams on the scheduler's books: what each call leaves there. A real engine has tests beside it."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_mm.agent.vllm.caches import EncoderStore, adds_up, drop_entries
from chaos_mm.agent.vllm.core_facts import core_refusals
from chaos_mm.core.fault import Seam


def manager(size: int, idle: dict[str, int], used: dict[str, int]) -> Any:
    """A stand-in with the fields of vLLM 0.32's EncoderCacheManager, filled as it fills them."""
    kept = {**used, **idle}
    return SimpleNamespace(
        cache_size=size,
        num_free_slots=size - sum(kept.values()),
        num_freeable_slots=size - sum(used.values()),
        cached={key: {"request"} if key in used else set() for key in kept},
        num_embeds_by_hash=dict(kept),
        freeable=OrderedDict(idle),
        freed=[],
    )


def test_a_dropped_entry_leaves_no_trace_but_the_order_to_the_workers():
    book = manager(100, {"a": 10, "b": 20}, {"c": 30})
    assert drop_entries(book, ["a", "c", "nobody"]) == 1
    assert book.cached.keys() == {"b", "c"} and book.freed == ["a"]
    assert (book.num_free_slots, book.num_freeable_slots) == (50, 70)
    assert adds_up(book) == ""


@pytest.mark.parametrize(("share", "left"), [(0.0, "abcd"), (0.25, "bcd"), (0.4, "cd"), (1.0, "d")])
def test_a_share_of_the_idle_entries_goes_the_oldest_first(share: float, left: str):
    book = manager(100, {"a": 10, "b": 10, "c": 10}, {"d": 10})
    assert EncoderStore(book, lambda: 1).evict(share) == 4 - len(left)
    assert "".join(sorted(book.cached)) == left
    assert adds_up(book) == ""


def test_a_smaller_budget_drops_what_has_no_room_and_the_former_one_gives_it_back():
    book = manager(100, {"a": 30, "b": 30}, {"c": 30})
    store = EncoderStore(book, lambda: 16)
    store.set_budget(60)
    assert book.cached.keys() == {"b", "c"} and store.budget == 60
    assert (book.num_free_slots, book.num_freeable_slots) == (0, 30)
    store.set_budget(1)
    assert store.budget == 16, "the largest medium must fit"
    assert book.cached.keys() == {"c"} and book.num_free_slots == 16 - 30
    store.set_budget(100)
    assert (book.num_free_slots, book.num_freeable_slots) == (70, 70)
    assert adds_up(book) == ""


@pytest.mark.parametrize("field", ["num_free_slots", "num_freeable_slots", "cache_size"])
def test_another_book_keeping_is_noticed(field: str):
    book = manager(100, {"a": 10}, {"b": 10})
    setattr(book, field, getattr(book, field) + 1)
    assert adds_up(book)


def engine(**changes: Any) -> Any:
    """A stand-in of vLLM's EngineCore, as the refusals look at it; ``changes`` by dotted name, dots as ``__``."""
    scheduler_type = type("Scheduler", (), {"__module__": "vllm.v1.core.sched.scheduler"})
    scheduler = scheduler_type()
    scheduler.block_size, scheduler.ec_connector = 16, None
    scheduler.kv_cache_config = SimpleNamespace(kv_cache_groups=["one"])
    scheduler.kv_cache_manager = SimpleNamespace(block_pool=SimpleNamespace(hash_block_size=16))
    scheduler.encoder_cache_manager = type("EncoderCacheManager", (), {})()
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=1),
        model_config=SimpleNamespace(supports_multimodal_inputs=True),
    )
    core = SimpleNamespace(scheduler=scheduler, vllm_config=config)
    for name, value in changes.items():
        *path, last = name.split("__")
        owner: Any = core
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)
    return core


MEDIA = {Seam.MEDIA_KEY, Seam.ENCODER_CACHE}
ALL = MEDIA | {Seam.BLOCK_POOL, Seam.SCHEDULER}


@pytest.mark.parametrize(
    ("changes", "refused", "word"),
    [
        ({}, set(), ""),
        ({"vllm_config__parallel_config__data_parallel_size": 2}, ALL, "data parallelism (2)"),
        ({"scheduler__kv_cache_config__kv_cache_groups": ["one", "two"]}, ALL, "2 key-value cache groups"),
        ({"scheduler": type("Theirs", (), {"__module__": "somebody"})()}, ALL, "Theirs"),
        ({"vllm_config__model_config__supports_multimodal_inputs": False}, MEDIA, "takes no media"),
        ({"scheduler__encoder_cache_manager": type("Others", (), {})()}, MEDIA, "Others"),
        ({"scheduler__ec_connector": object()}, MEDIA, "connector"),
        ({"scheduler__kv_cache_manager__block_pool__hash_block_size": 8}, {Seam.MEDIA_KEY}, "another size"),
    ],
)
def test_what_was_not_seen_working_is_refused_by_name(changes: dict[str, Any], refused: set[Seam], word: str):
    found = core_refusals(engine(**changes))
    assert found.keys() == refused
    assert all(word in why for why in found.values())
