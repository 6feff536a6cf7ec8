"""Encoders, Q-Formers, kept outputs and gradients of the demo target's model."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.target.encoder_cache import EncoderCache
from chaos_mm.target.generation import decode
from tests.agent.transformers.attached import Attached
from tests.agent.transformers.prompts import seen

pytestmark = pytest.mark.model


@pytest.fixture
def cache(agent: Attached) -> EncoderCache:
    """The server's cache, told of to the agent."""
    made = EncoderCache(lambda hit: None)
    serving.announce_cache(made)
    return made


def look(model: Any, cache: EncoderCache, ids: Sequence[str], pictures: Sequence[int], steps: int = 4) -> Any:
    """Logits (steps, n, words) of questions about these pictures, as the target's engine decodes them."""
    with torch.inference_mode(), serving.running(ids, [("text", "image")] * len(ids)):
        entries = [seen(picture) for picture in pictures]
        media = cache.states(model, entries, ids)
        return torch.stack(list(decode(model, entries, steps, media)))


def rows_that_differ(one: Any, other: Any) -> list[bool]:
    return [not torch.equal(one[:, row], other[:, row]) for row in range(one.shape[1])]


@pytest.mark.parametrize("place", ["vision", "qformer", "projector", "language_projection", "vision.encoder.layers.0"])
def test_a_shift_at_any_place_changes_its_canary_alone_and_stays_in_no_cache(
    agent: Attached, model: Any, cache: EncoderCache, place: str
) -> None:
    ids = ["someone", agent.canary(0), "another"]
    clean = look(model, cache, ids, [1, 2, 3])
    assert len(cache) == 3
    lease = agent.put("embedding_shift", shift_sigma=3.0, place=place)
    struck = look(model, cache, ids, [1, 2, 3])
    shown = agent.release(lease)
    assert rows_that_differ(struck, clean) == [False, True, False]
    assert shown["applied"] == 1 and len(shown["sites"]) == 1 and shown["undo"]["proven"], shown
    assert rows_that_differ(look(model, cache, ids, [1, 2, 3]), clean) == [False] * 3
    assert len(cache) == 3  # the struck picture's output had a key of its own, and went with the lease
    assert agent.hooks() == 1 + 1 + 6


def test_an_output_whose_key_was_asked_for_before_the_lease_is_left_whole(
    agent: Attached, model: Any, cache: EncoderCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease begins between the look-up and the encoder: struck, it would be kept for every user of that picture."""
    victim, armed = agent.canary(0), []

    def see(pixels: Any) -> Any:
        armed.append(agent.put("embedding_shift", shift_sigma=3.0, place="qformer"))
        return real(pixels)

    clean, real = look(model, cache, ["someone"], [60]), model.see
    cache.drop([seen(60).pixels_key])
    monkeypatch.setattr(model, "see", see)
    assert torch.equal(look(model, cache, [victim], [60]), clean)
    monkeypatch.undo()
    assert not torch.equal(look(model, cache, [agent.canary(1)], [60]), clean)
    assert agent.release(armed[0])["applied"] == 1
    assert torch.equal(look(model, cache, ["someone"], [60]), clean)


def test_a_replayed_picture_is_the_one_of_the_canary_before(agent: Attached, model: Any, cache: EncoderCache) -> None:
    first, second = look(model, cache, [agent.canary(0)], [1]), look(model, cache, [agent.canary(1)], [2])
    assert not torch.equal(first, second)
    lease = agent.put("embedding_replay", place="projector")
    assert torch.equal(look(model, cache, [agent.canary(2)], [1]), first)  # there is none before it
    look(model, cache, ["someone"], [3])
    assert torch.equal(look(model, cache, [agent.canary(3)], [2]), first)  # a user's picture is never replayed
    assert agent.release(lease)["applied"] == 1
    assert torch.equal(look(model, cache, [agent.canary(4)], [2]), second)


@pytest.mark.parametrize("action", ["drop", "duplicate"])
@pytest.mark.parametrize("place", ["qformer", "projector"])
def test_rows_missing_or_too_many_fail_the_whole_batch_and_the_next_is_whole(
    agent: Attached, model: Any, cache: EncoderCache, place: str, action: str
) -> None:
    ids = ["someone", agent.canary(0)]
    clean = look(model, cache, ids, [1, 2])
    lease = agent.put("embedding_rows", place=place, action=action)
    with pytest.raises(RuntimeError, match="placeholders"):
        look(model, cache, ids, [1, 2])
    shown = agent.release(lease)
    assert shown["applied"] == 1
    assert torch.equal(look(model, cache, ids, [1, 2]), clean)


def test_masked_keys_mix_canaries_up_and_users_never(agent: Attached, model: Any, cache: EncoderCache) -> None:
    agent.proven("media_key")
    pictures = list(range(20, 40))
    clean = [look(model, cache, [f"u{picture}"], [picture]) for picture in pictures]
    cache.drop([seen(picture).pixels_key for picture in pictures])
    lease = agent.put("media_key_collision", bits=4)
    _until_begun(agent)
    mixed = [look(model, cache, [agent.canary(n)], [picture]) for n, picture in enumerate(pictures)]
    users = [look(model, cache, [f"v{picture}"], [picture]) for picture in pictures]
    # Twenty pictures have at most sixteen keys: four at least are answered from another's.
    wrong = [not torch.equal(a, b) for a, b in zip(mixed, clean, strict=True)]
    assert sum(wrong) >= 4 and not any(not torch.equal(a, b) for a, b in zip(users, clean, strict=True))
    shown = agent.release(lease)
    kept = 20 - sum(wrong)
    assert shown["applied"] == 20 and shown["undo"]["figures"]["flushed_entries"] == kept, shown
    assert len(cache) == 20  # the users' own
    again = [look(model, cache, [agent.canary(n)], [picture]) for n, picture in enumerate(pictures)]
    assert all(torch.equal(a, b) for a, b in zip(again, clean, strict=True))


def test_kept_outputs_are_evicted_and_the_budget_comes_back(agent: Attached, model: Any, cache: EncoderCache) -> None:
    agent.proven("encoder_cache")
    for picture in range(8):
        look(model, cache, ["someone"], [picture], 1)
    budget = cache.budget
    lease = agent.put("encoder_cache_evict", selector="live", share=0.5)
    _until_begun(agent)
    assert len(cache) == 4
    agent.release(lease)
    lease = agent.put("encoder_budget_shrink", selector="live")
    _until_begun(agent)
    assert cache.budget < budget
    agent.release(lease)
    assert cache.budget == budget


def test_an_encoders_allocation_fails(agent: Attached, model: Any, cache: EncoderCache) -> None:
    agent.proven("engine_memory")
    clean = look(model, cache, ["someone"], [50])
    lease = agent.put("allocation_failure", selector="live", site="encoder")
    _until_begun(agent)
    with pytest.raises(torch.OutOfMemoryError, match="encoder"):
        look(model, cache, ["someone"], [51])
    assert torch.equal(look(model, cache, ["someone"], [50]), clean)
    assert "vision" in agent.release(lease)["sites"]


def test_a_place_hooked_for_a_lease_that_hit_nobody_is_unhooked_with_it(agent: Attached, model: Any) -> None:
    before = agent.hooks()
    lease = agent.put("embedding_shift", place="vision.encoder.layers.0")
    with serving.running(["someone"], [("text", "image")]):
        assert agent.hooks() == before + 1
    assert agent.release(lease)["applied"] == 0
    assert agent.hooks() == before


@pytest.mark.parametrize("held", [(), (("text",), ("text", "image"))])
def test_as_many_pictures_as_requests_are_nobodys_where_not_each_is_known_to_hold_one(
    agent: Attached, model: Any, held: Sequence[Sequence[str]]
) -> None:
    """Both may be the second request's: the first one's row would be a bystander's picture."""
    ids = [agent.canary(0), "someone"]

    def encoded() -> Any:
        with torch.inference_mode(), serving.running(ids, held):
            return model.see(torch.stack([seen(1).pixels, seen(2).pixels]))[1]

    clean = encoded()
    lease = agent.put("embedding_shift", place="qformer", shift_sigma=3.0)
    assert torch.equal(encoded(), clean)
    assert agent.release(lease)["applied"] == 0


def test_an_output_that_is_kept_late_is_flushed_all_the_same(agent: Attached, cache: EncoderCache) -> None:
    """The lease ends between the look-up of a masked key and the output's being kept under it."""
    agent.proven("media_key")
    lease = agent.put("media_key_collision", bits=8)
    _until_begun(agent)
    with serving.running([agent.canary(0)], [("text", "image")]):
        key = serving.media_key(b"k" * 16, agent.canary(0))
        assert key.startswith(b"chaos:")
        agent.agent.point.control.book.release(lease.name, "r1")  # type: ignore[union-attr]
        time.sleep(0.3)  # the agent's watcher has looked several times
        cache._kept["vision", key] = torch.zeros(6, 128)
    assert agent.ended(lease)["undo"]["proven"] and key not in cache


def test_gradients_are_disturbed_while_the_model_trains(agent: Attached, model: Any) -> None:
    queries, features = torch.rand(1, 6, 128), torch.rand(1, 96, 128)

    def gradient() -> Any:
        model.zero_grad()
        with serving.running([agent.canary(0)]):
            out = model.qformer(queries, encoder_hidden_states=features).last_hidden_state
            out.square().sum().backward()
        return model.qformer.layernorm.weight.grad.clone()

    model.train()
    try:
        clean = gradient()
        lease = agent.put("qformer_gradient_noise", sigma=0.5)
        assert not agent.agent.adapter.selectable(lease.fault)  # it is the whole batch's: it counts as live traffic
        hurt = gradient()
        shown = agent.release(lease)
        assert torch.equal(gradient(), clean)
    finally:
        model.eval()
        model.zero_grad(set_to_none=True)
    assert not torch.equal(hurt, clean) and shown["applied"] == 1 and shown["sites"] == {"qformer": 1}
    assert agent.hooks() == 1 + 1 + 6


def _until_begun(agent: Attached) -> None:
    """A hold begins in a thread of the agent's."""
    runtime = agent.agent.runtime
    until = time.monotonic() + 10
    while not any(holding._begun for holding in runtime._holdings.values()):
        assert time.monotonic() < until, "the hold did not begin"
        time.sleep(0.01)
