"""Intervals and quantiles against scipy and numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from chaos_mm.sli.statistics import quantile, samples_needed, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 3), (270, 300), (3, 1000), (50, 100), (1, 1)])
def test_wilson_is_scipys(k: int, n: int) -> None:
    reference = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson(k, n) == pytest.approx((reference.low, reference.high), abs=1e-12)


def test_wilson_worked_example() -> None:
    # 8 of 10 at 95 %: Agresti and Coull (1998) and every textbook have 0.490 to 0.943.
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_wilson_without_trials_knows_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_wilson_refuses_nonsense(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="within 0"):
        wilson(k, n)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], q: float) -> None:
    assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)


def test_quantile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 values"):
        quantile([], 0.5)


def test_ten_samples_lie_beyond_a_quantile() -> None:
    assert [samples_needed(q) for q in (0.5, 0.95, 0.99)] == [20, 200, 1000]
