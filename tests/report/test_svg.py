"""Elements are escaped; scales are linear; ticks are round."""

import math

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from chaos_mm.report.svg import Markup, Scale, element, path, ticks, write

NUMBERS = st.floats(-1e30, 1e30)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("<>&\"'")))
def test_text_and_attributes_come_back_as_they_were(told: str) -> None:
    found = etree.fromstring(element("text", write(told), class_=told, text_anchor="end").encode())
    assert (found.text or "", found.get("class"), found.get("text-anchor")) == (told, told, "end")


def test_a_missing_attribute_and_no_children() -> None:
    assert element("line", x=1.04, y=2.0, id=None) == '<line x="1" y="2"/>'
    assert Markup("<b>").__html__() == "<b>"


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_scale_stays_between_its_ends(low: float, high: float, told: float) -> None:
    assert 10.0 <= Scale(low, high, 10.0, 20.0)(told) <= 20.0


def test_a_scale_is_linear_and_may_run_down() -> None:
    assert [Scale(0, 4, 100, 20)(v) for v in (0, 1, 4, 9, -1)] == [100, 80, 20, 20, 100]


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(1, 12))
def test_ticks_are_few_and_inside(low: float, span: float, most: int) -> None:
    found, high = ticks(low, low + span, most), low + span
    assert len(found) <= max(1, most)
    slack = 1e-6 * max(abs(low), abs(high), span)
    assert all(low - slack <= tick <= high + slack for tick in found)


def test_ticks_step_by_one_two_or_five() -> None:
    assert ticks(0, 60, 8) == [0, 10, 20, 30, 40, 50, 60]
    assert ticks(0.37, 1, 4) == [0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 0.013, 4) == [0, 0.005, 0.01]
    assert ticks(3, 3, 5) == [3] and ticks(0, 1, 0) == [0]
    for high in (7e-8, 0.3, 55.0, 9e9, 1e30):
        step = ticks(0, high, 6)[1]
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - want) for want in (1, 2, 5)) < 1e-6


def test_a_path() -> None:
    assert path([(0, 1.25), (2.5, 3)]) == "M0 1.2L2.5 3"
