"""Numbers and words as people read them."""

import pytest

from chaos_mm.report.parts import Achieved, Objective, Window
from chaos_mm.report.wording import achieved, bound, clipped, duration, moment, name_of, plain, together, value, window


@pytest.mark.parametrize(
    ("amount", "unit", "shown"),
    [
        (0.983, "ratio", "98.3 %"),
        (1.0, "ratio", "100 %"),
        (0.0, "ratio", "0 %"),
        (2.04, "s", "2 s"),
        (12, "requests", "12"),
        (11.25, "1/s", "11.2 /s"),
        (-0.0001, "", "0"),
        (1e30, "s", "1e+30 s"),
        (3.5, "MiB", "3.5 MiB"),
    ],
)
def test_values(amount: float, unit: str, shown: str) -> None:
    assert value(amount, unit) == shown


def test_a_value_that_misses_its_bound_never_reads_like_it() -> None:
    assert value(0.9799, "ratio", 0.98) == "97.99 %"
    assert value(0.979999, "ratio", 0.98) == "97.9999 %"
    assert value(0.98, "ratio", 0.98) == "98 %"


def test_bounds() -> None:
    objective = Objective.of({"comparison": "lte", "threshold": 2})
    assert bound(objective, "s") == "at most 2 s"
    assert bound(Objective.of({"comparison": "gte"}), "s") == "no threshold is known"
    assert bound(Objective.of({"comparison": "about", "threshold": 1}), "") == "about 1"


def test_windows() -> None:
    assert window(Window.of({"measured": True, "value": 0.5}, "ratio"), 0.5) == "50 %"
    assert window(Window.of({}, "ratio"), 0.5) == "no data"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (-1, "–"), (0, "0 s"), (41.23, "41.2 s"), (125, "2 min 5 s"), (180, "3 min"), (7380, "2 h 3 min")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_moments() -> None:
    assert moment("2026-11-30T09:00:00.123Z") == "30 November 2026, 09:00:00 UTC"
    assert moment("2026-11-03T09:00:00+02:00") == "3 November 2026, 09:00:00 UTC+02:00"
    assert moment("") == "at an unknown time" and moment("yesterday") == "yesterday"


def test_achieved_names_carry_their_unit() -> None:
    def named(name: str) -> tuple[str, str]:
        return achieved(Achieved(name, 1, 1.0, 1.0, 1.0))

    assert named("psnr_db") == ("PSNR", "dB") and named("delay_seconds") == ("delay", "s")
    assert named("masked_share") == ("masked share", "")


def test_any_json_fits_a_cell() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert [plain(told) for told in (None, "a", True, 2, 0.5, [1, "ü"], {"a": None})] == [
        *("none", "a", "true", "2", "0.5"),
        '[1, "ü"]',
        '{"a": null}',
    ]
    assert plain(deep) == plain([10**5000]) == "a value that cannot be shown"


def test_clipped() -> None:
    assert clipped("a\n  b\t", 9) == "a b" and clipped("abcdef", 4) == "abc…" and clipped("x" * 10_000, 5) == "xxxx…"
    assert clipped(" " * 100 + "x", 5) == "…" and name_of("not_exercised") == "not exercised"


def test_numbers_stay_with_their_units() -> None:
    told = "88.6 % in 2 min 5 s, 9 dB; 3 sets of 20 s"
    assert together(told) == "88.6\u00a0% in 2\u00a0min 5\u00a0s, 9\u00a0dB; 3 sets of 20\u00a0s"
