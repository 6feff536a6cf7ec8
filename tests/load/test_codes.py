"""Codes: seeded, uniform, and far from their neighbours."""

from collections import Counter

from scipy import stats

from chaos_mm.core.rng import Rng
from chaos_mm.load.codes import DISTANCE, NEIGHBOURS, Codes, distance, near_miss


def take(count: int, seed: int = 1, name: str = "s") -> list[str]:
    codes = Codes(seed, name)
    return [codes.next() for _ in range(count)]


def test_the_same_seed_gives_the_same_codes() -> None:
    assert take(50) == take(50)
    assert take(50) != take(50, seed=2)
    assert take(50) != take(50, name="t")


def test_neighbours_differ_in_three_digits() -> None:
    codes = take(2000)
    for n, code in enumerate(codes):
        assert all(distance(code, other) >= DISTANCE for other in codes[max(0, n - NEIGHBOURS) : n])


def test_every_digit_is_as_likely_at_every_place() -> None:
    codes = take(4000)
    for place in range(4):
        counts = Counter(code[place] for code in codes)
        assert stats.chisquare([counts[digit] for digit in "0123456789"]).pvalue > 1e-4


def test_a_near_miss_is_another_code() -> None:
    rng = Rng.derive(1, "x", "near", "test")
    pairs = [(code, near_miss(code, rng)) for code in take(400)]
    distances = Counter(distance(a, b) for a, b in pairs)
    assert distances[0] == 0
    assert distances[1] > 100  # the hard ones: one digit off
    assert distances[3] + distances[4] > 50


def test_codes_are_four_digits() -> None:
    assert all(len(code) == 4 and code.isdecimal() for code in take(200))
