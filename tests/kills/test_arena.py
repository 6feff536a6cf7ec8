"""SIGKILL anybody at any moment: nothing is left behind, nothing is believed that was not measured."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kills.arena import RUN_SECONDS, VICTIMS, Arena, rounds

pytestmark = [pytest.mark.kills]


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    made = Arena(tmp_path)
    yield made
    made.demo.close()


def kill_many(arena: Arena, count: int, targets: int, seed: int) -> None:
    troubles = []
    for one in rounds(count, targets, seed):
        after = arena.play(one)
        troubles += [f"{one}: {trouble}\n{after.output[-1500:]}" for trouble in after.troubles()]
    assert not troubles, "\n".join(troubles)


@pytest.mark.parametrize(("seed", "targets"), [(1, 4), (2, 3), (3, 3)])
@pytest.mark.timeout(900)
def test_sixty_kills(arena: Arena, seed: int, targets: int) -> None:
    kill_many(arena, 20, targets, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
@pytest.mark.timeout(0)
def test_a_thousand_kills(arena: Arena, seed: int) -> None:
    kill_many(arena, 250, 42, seed)


def test_rounds_are_spread_over_everybody_and_the_whole_run() -> None:
    made = rounds(60, 10, 7)
    assert Counter(one.victim for one in made) == {"chaos": 17, "proxy": 17, "load": 16, "target": 10}
    assert {one.victim for one in made} == set(VICTIMS)
    moments = sorted(one.after_seconds for one in made)
    assert moments[0] < 1.0 and moments[-1] > RUN_SECONDS - 1.0
    assert rounds(60, 10, 7) == made
