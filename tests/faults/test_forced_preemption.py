"""forced_preemption in a real continuous batch: the same words as the twin that was never preempted, at a cost."""

import pytest

from chaos_mm.core.rng import Rng
from chaos_mm.faults.forced_preemption import forced_preemption
from tests.contract.engine_samples_embedding import Batch, Sequence

RNG = Rng.derive(3, "lease-1", "0", "forced_preemption")


def _sequences() -> list[Sequence]:
    return [Sequence(f"r-{n}", list(range(n, n + 5)), 20) for n in range(4)]


def _twin() -> tuple[dict[str, list[int]], int]:
    batch = Batch(frozenset())
    return batch.run(_sequences()), batch.computed


@pytest.mark.parametrize(("after", "times", "done"), [(1, 1, 1), (8, 1, 1), (5, 3, 3), (5, 100, 3), (40, 1, 0)])
def test_text_is_the_twin_s_and_what_was_lost_is_computed_again(after: int, times: int, done: int):
    batch, sequences = Batch(frozenset({"r-1", "r-2"})), _sequences()
    hold = forced_preemption(batch, RNG, after_tokens=after, times=times)
    assert next(hold) == {"after_tokens": after, "times": times}
    said = batch.run(sequences)
    hold.close()
    twin, computed = _twin()
    assert said == twin
    assert [sequence.preempted for sequence in sequences] == [0, done, done, 0]
    # Preempted at after * i output tokens, the prompt of five and those are computed again instead of the last one.
    again = sum(5 + after * i - 1 for i in range(1, done + 1))
    assert batch.computed - computed == 2 * again


def test_the_end_lets_everyone_run():
    batch, sequences = Batch(frozenset({"r-1"})), _sequences()
    hold = forced_preemption(batch, RNG, after_tokens=2, times=50)
    next(hold)
    hold.close()
    assert batch.run(sequences) == _twin()[0]
    assert all(sequence.preempted == 0 for sequence in sequences)


def test_the_words_are_not_all_alike():
    """Else the twin would prove nothing."""
    twin, _ = _twin()
    assert len({tuple(said) for said in twin.values()}) > 1 and any(len(set(said)) > 1 for said in twin.values())


def test_it_picks_requests_itself():
    assert forced_preemption.selectable
