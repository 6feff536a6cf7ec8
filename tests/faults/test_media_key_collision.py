"""media_key_collision on a real encoder cache: canaries collide as the birthday bound says, users never meet them."""

import math

import pytest
import torch

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.rng import Rng
from chaos_mm.faults.media_key_collision import media_key_collision
from tests.contract.engine_samples_embedding import EncoderStore, pictures

CANARIES = frozenset(f"c-{n}" for n in range(400))


def _rng(seed: int = 3, lease: str = "lease-1") -> Rng:
    return Rng.derive(seed, lease, "0", "media_key_collision")


def _answers(store: EncoderStore, who: str, media: torch.Tensor) -> list[torch.Tensor]:
    return [store.rows(f"{who}-{n}", picture) for n, picture in enumerate(media)]


def test_one_canary_is_answered_from_another_s_picture_and_no_user_is():
    store, media, clean = EncoderStore(1000, CANARIES), pictures(60), EncoderStore(1000)
    wanted = _answers(clean, "u", media)
    hold = media_key_collision(store, _rng(), bits=4)
    figures = next(hold)
    assert figures == {"bits": 4.0, "keys": 16.0}
    hurt = _answers(store, "c", media)
    users = _answers(store, "u", media)
    hold.close()
    wrong = sum(not torch.equal(a, b) for a, b in zip(hurt, wanted, strict=True))
    assert wrong >= 60 - 16, "60 pictures have 16 keys"
    assert all(any(torch.equal(answer, other) for other in wanted) for answer in hurt), "always a canary's, never noise"
    assert all(torch.equal(a, b) for a, b in zip(users, wanted, strict=True))


@pytest.mark.parametrize(("bits", "count"), [(4, 5), (8, 20)])
def test_collisions_come_as_often_as_the_birthday_bound_says(bits: int, count: int):
    store = EncoderStore(1000, CANARIES)
    hold = media_key_collision(store, _rng(), bits=bits)
    next(hold)
    runs = 200
    hits = sum(
        len({store.key("c-0", picture) for picture in pictures(count, seed=seed)}) < count for seed in range(runs)
    )
    wanted = 1 - math.exp(-count * (count - 1) / 2 ** (bits + 1))
    assert abs(hits / runs - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / runs) + 0.06  # the bound is not exact
    hold.close()


def test_the_end_restores_whole_keys_and_flushes_what_stood_under_cut_ones():
    store, media = EncoderStore(1000, CANARIES), pictures(40)
    before = _answers(store, "u", media[:5])
    hold = media_key_collision(store, _rng(), bits=4)
    next(hold)
    _answers(store, "c", media)
    cut = store.entries - 5
    assert 1 <= cut <= 16
    with pytest.raises(StopIteration) as ended:
        next(hold)
    assert ended.value.value == {"flushed_entries": cut}
    assert store.entries == 5
    after = _answers(store, "c", media)
    assert all(torch.equal(a, b) for a, b in zip(after, _answers(EncoderStore(1000), "u", media), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=False))


def test_the_salt_is_128_bits_of_the_lease():
    class Keys:
        def __init__(self) -> None:
            self.salts: list[bytes] = []

        def mask(self, bits: int, salt: bytes) -> None:
            self.salts.append(salt)

        def restore(self) -> dict[str, float]:
            return {}

    keys = Keys()
    for rng in (_rng(), _rng(), _rng(4), _rng(3, "lease-2")):
        next(media_key_collision(keys, rng))
    first, again, other, third = keys.salts
    assert first == again and len({first, other, third}) == 3 and len(first) == 16


def test_an_unproven_restore_is_loud():
    class Stuck(EncoderStore):
        def restore(self) -> dict[str, float]:
            raise ChaosMMError("the flush answered success: false")

    hold = media_key_collision(Stuck(), _rng())
    next(hold)
    with pytest.raises(ChaosMMError, match="success: false"):
        hold.close()


def test_a_set_up_that_fails_halfway_is_undone():
    class Halfway(EncoderStore):
        def mask(self, bits: int, salt: bytes) -> None:
            super().mask(bits, salt)
            raise ChaosMMError("the second worker did not answer")

    store = Halfway(8, CANARIES)
    with pytest.raises(ChaosMMError, match="second worker"):
        next(media_key_collision(store, _rng()))
    assert store.key("c-0", pictures(1)[0]) == EncoderStore().key("u-0", pictures(1)[0])


def test_only_canaries_may_suffer_it():
    assert media_key_collision.carries_content and media_key_collision.selectable
