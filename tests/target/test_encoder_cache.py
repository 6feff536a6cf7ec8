"""The target's encoder cache: what it keeps, for how long, and that answers do not change by it."""

from typing import Any

import pytest
import torch

from chaos_mm.core import serving
from chaos_mm.target import front_end, tokens
from chaos_mm.target.encoder_cache import EncoderCache, medium_key
from chaos_mm.target.generation import ModelInput, decode, media_states

pytestmark = pytest.mark.model


def picture(seed: int) -> torch.Tensor:
    return torch.rand((3, front_end.HEIGHT, front_end.WIDTH), generator=torch.Generator().manual_seed(seed))


def entry(seed: int, *, sound: bool = False) -> ModelInput:
    ids = tokens.prompt_ids(tokens.text_ids("what number is shown"), True, sound)
    pixels = picture(seed)
    mel = torch.rand((front_end.MELS, front_end.FRAMES), generator=torch.Generator().manual_seed(seed))
    return ModelInput(ids, pixels, mel if sound else None, medium_key(pixels), medium_key(mel) if sound else b"")


class Kept(EncoderCache):
    """A cache that writes down its hits."""

    def __init__(self, budget: int = 4) -> None:
        self.hits: list[bool] = []
        super().__init__(self.hits.append, budget)


@torch.inference_mode()
def states(model: Any, cache: EncoderCache, *entries: ModelInput) -> tuple[Any, Any]:
    return cache.states(model, entries, [f"r{i}" for i in range(len(entries))])


def test_a_picture_seen_again_is_not_encoded_again_and_gives_the_same_states(model: Any) -> None:
    cache = Kept()
    first = states(model, cache, entry(1), entry(2, sound=True))
    calls: list[int] = []
    hook = model.vision.register_forward_hook(lambda *given: calls.append(given[1][0].shape[0]))
    try:
        again = states(model, cache, entry(2, sound=True), entry(3), entry(1))
    finally:
        hook.remove()
    assert calls == [1]  # the third picture alone
    assert cache.hits == [False, False, False, True, False, True, True]
    assert torch.equal(again[0][0], first[0][1]) and torch.equal(again[0][2], first[0][0])
    assert torch.equal(again[1], first[1])


@torch.inference_mode()
def test_a_batch_of_new_media_is_encoded_as_without_a_cache(model: Any) -> None:
    entries = [entry(1, sound=True), entry(2), entry(3, sound=True)]
    for mine, plain in zip(states(model, Kept(), *entries), media_states(model, entries), strict=True):
        assert torch.equal(mine, plain)
    direct = torch.stack(list(decode(model, entries, 4)))
    assert torch.equal(direct, torch.stack(list(decode(model, entries, 4, media_states(model, entries)))))


def test_the_longest_unused_goes_first(model: Any) -> None:
    cache = Kept(budget=2)
    states(model, cache, entry(1), entry(2))
    states(model, cache, entry(1))
    states(model, cache, entry(3))
    keys = {seed: medium_key(picture(seed)) for seed in (1, 2, 3)}
    assert [keys[seed] in cache for seed in (1, 2, 3)] == [True, False, True]
    assert cache.evict(0.3) == 1 and [keys[seed] in cache for seed in (1, 3)] == [False, True]
    assert cache.drop([keys[3], b"nobody's"]) == 1 and len(cache) == 0


def test_a_smaller_budget_holds_at_once_and_zero_keeps_nothing(model: Any) -> None:
    cache = Kept(budget=4)
    states(model, cache, entry(1), entry(2), entry(3))
    cache.resize(1)
    assert len(cache) == 1 and cache.budget == 1
    cache.resize(0)
    states(model, cache, entry(1))
    assert len(cache) == 0


def test_what_has_no_key_is_never_kept(model: Any) -> None:
    cache = Kept()
    states(model, cache, entry(1)._replace(pixels_key=b""))
    assert len(cache) == 0 and cache.hits == []


def test_an_encoder_that_gives_other_rows_than_placeholders_fails_the_batch(model: Any) -> None:
    hook = model.qformer.register_forward_hook(
        lambda module, args, output: output.__class__(last_hidden_state=output.last_hidden_state[:, :5])
    )
    try:
        with pytest.raises(RuntimeError, match=r"vision: 5 rows for 1 x 6 placeholders"):
            states(model, Kept(), entry(1))
    finally:
        hook.remove()


def test_keys_that_are_masked_collide_and_those_of_pictures_and_sound_never_do(model: Any) -> None:
    class Blunt:
        """Every medium has one key."""

        def key(self, key: bytes, request: str) -> bytes:
            return b"one"

        def cache(self, kept: object) -> None: ...

        def model(self, model: object) -> None: ...

    cache = Kept()
    end = serving.listen(Blunt())  # type: ignore[arg-type]
    try:
        first = states(model, cache, entry(1, sound=True))
        second = states(model, cache, entry(2, sound=True))
    finally:
        end()
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert len(cache) == 2 and cache.drop([b"one"]) == 2
