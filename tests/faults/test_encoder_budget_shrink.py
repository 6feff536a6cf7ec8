"""encoder_budget_shrink on a real LRU: more is computed while it holds, and the former capacity comes back."""

import pytest
import torch

from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.rng import Rng
from chaos_mm.faults.encoder_budget_shrink import encoder_budget_shrink
from tests.contract.engine_samples_embedding import EncoderStore, pictures

RNG = Rng.derive(3, "lease-1", "0", "encoder_budget_shrink")


@pytest.mark.parametrize(("share", "left"), [(0.25, 15), (0.5, 10), (0.9, 2), (1.0, 1)])
def test_the_budget_shrinks_by_the_share_keeps_one_and_comes_back(share: float, left: int):
    store = EncoderStore(20)
    hold = encoder_budget_shrink(store, RNG, share=share)
    assert next(hold) == {"budget_before": 20, "budget_after": left}
    assert store.budget == left
    hold.close()
    assert store.budget == 20


def test_rounds_of_twelve_pictures_are_encoded_every_time_while_it_holds_and_never_before_or_after():
    store, media = EncoderStore(12), pictures(12)

    def encoded_in_a_round() -> int:
        before = store.encoded
        answers.append([store.rows("u", picture) for picture in media])
        return store.encoded - before

    answers: list[list[torch.Tensor]] = []
    assert [encoded_in_a_round(), encoded_in_a_round()] == [12, 0]
    hold = encoder_budget_shrink(store, RNG, share=0.5)
    next(hold)
    # An LRU of six walked round in order by twelve never holds the next one.
    assert [encoded_in_a_round(), encoded_in_a_round()] == [12, 12]
    hold.close()
    assert [encoded_in_a_round(), encoded_in_a_round()] == [6, 0], "six are still kept, and then there is room for all"
    assert all(torch.equal(a, b) for answer in answers for a, b in zip(answer, answers[0], strict=True))


@pytest.mark.parametrize(("budget", "share"), [(1, 0.5), (20, 0.001)])
def test_a_capacity_that_did_not_shrink_is_refused_and_stays(budget: int, share: float):
    store = EncoderStore(budget)
    with pytest.raises(ChaosMMError, match=f"the budget of {budget} cannot shrink by a share of {share}"):
        next(encoder_budget_shrink(store, RNG, share=share))
    assert store.budget == budget


def test_an_engine_that_holds_more_back_is_believed():
    class Careful(EncoderStore):
        def set_budget(self, budget: int) -> None:
            super().set_budget(max(8, budget))

    hold = encoder_budget_shrink(Careful(20), RNG, share=1.0)
    assert next(hold)["budget_after"] == 8
