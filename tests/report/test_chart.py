"""A chart read back as XML: what it draws lies where the numbers say."""

from dataclasses import replace
from typing import Any

import pytest
from lxml import etree

from chaos_mm.report.chart import WIDTHS, chart
from chaos_mm.report.parts import Objective
from chaos_mm.report.timeline import Mark, Point, Series, Span, Timeline

LINE = Timeline(
    60.0, (Span("baseline", 0, 20), Span("fault", 20, 40), Span("recovery", 40, 60)), (Span("x", 20, 40),), ()
)
OBJECTIVE = Objective.of({"name": "answers", "sli": "canary_exact", "comparison": "gte", "threshold": 0.5})
LEFT, RIGHT, TOP, BOTTOM = 52.0, 850.0, 22.0, 158.0


def points(*values: float | None, whole: bool = True) -> tuple[Point, ...]:
    return tuple(Point(float(at), v, v is not None and v >= 0.5, whole) for at, v in enumerate(values))


def drawn(told: Series, line: Timeline = LINE, width: float = WIDTHS["wide"]) -> Any:
    return etree.fromstring(chart(told, line, width=width, identity="c1", description="said <aloud>").encode())


def ratio(*values: float | None) -> Series:
    return Series(OBJECTIVE, "ratio", points(*values), ())


def found(svg: Any, kind: str) -> list[Any]:
    return [one for one in svg.iter() if kind in one.get("class", "").split()]


def test_it_is_an_image_with_a_name_and_a_description() -> None:
    svg = drawn(ratio(1.0, 0.9))
    assert svg.get("role") == "img" and svg.get("aria-labelledby") == "c1-title c1-desc"
    assert svg[0].text == "answers over time" and svg[1].text == "said <aloud>"
    ids = [one.get("id") for one in svg.iter() if one.get("id")]
    assert len(ids) == len(set(ids)) and all(name.startswith("c1-") for name in ids)


def test_fault_phases_and_threshold_lie_where_they_ought() -> None:
    svg = drawn(ratio(1.0, 0.0))  # from 0 to 100 %
    (fault,) = found(svg, "under-fault")
    third = (RIGHT - LEFT) / 3
    assert float(fault.get("x")) == pytest.approx(LEFT + third, abs=0.1)
    assert float(fault.get("width")) == pytest.approx(third, abs=0.1)
    assert [one.text for one in found(svg, "phase-name")] == ["baseline", "fault", "recovery"]
    (threshold,) = found(svg, "threshold")
    assert float(threshold.get("y1")) == pytest.approx((TOP + BOTTOM) / 2)
    assert found(svg, "threshold-name")[0].text == "at least 50 %"


def test_the_curve_goes_through_its_points() -> None:
    (curve,) = found(drawn(ratio(1.0, 0.5, 0.0)), "curve")
    step = (RIGHT - LEFT) / 60
    assert curve.get("d") == f"M52 22L{LEFT + step:.1f} 90L{LEFT + 2 * step:.1f} 158"


def test_a_gap_breaks_the_curve_and_is_hatched() -> None:
    told = replace(ratio(1.0, 1.0, None, 1.0, 1.0), gaps=(Span("no data", 1.0, 3.0),))
    svg = drawn(told)
    assert len(found(svg, "curve")) == 2
    (gap,) = found(svg, "gap")
    assert gap.get("fill") == "url(#c1-hatch)" and float(gap.get("width")) == pytest.approx(2 * 798 / 60, abs=0.1)


def test_a_point_alone_is_a_dot() -> None:
    assert len(found(drawn(ratio(None, 0.9, None)), "dot")) == 1


def test_windows_that_are_not_whole_are_dotted_and_never_crossed() -> None:
    told = Series(OBJECTIVE, "ratio", points(0.9, 0.2, 0.2, whole=False) + points(0.9, 0.2)[1:], ())
    assert not found(drawn(Series(OBJECTIVE, "ratio", points(0.1, 0.2, whole=False), ())), "unmet")
    svg = drawn(replace(told, points=(*points(0.9, 0.2, whole=False), Point(2.0, 0.2, False, True))))
    assert len(found(svg, "partial")) == 1 and len(found(svg, "curve")) == 2
    assert found(svg, "unmet")[0].get("d").count("M") == 1


def test_the_worst_windows_are_ringed_and_those_not_met_crossed() -> None:
    worst = (Point(20.0, 0.9, True, True), Point(40.0, 0.5, False, True))
    svg = drawn(replace(ratio(1.0, 0.0), worst=worst))
    rings = found(svg, "worst")
    assert [float(ring.get("cx")) for ring in rings] == pytest.approx([LEFT + 266, LEFT + 532])
    assert float(rings[1].get("cy")) == pytest.approx((TOP + BOTTOM) / 2)
    assert [ring.get("class") for ring in rings] == ["worst", "worst missed"]
    assert len(found(svg, "unmet")) == 2  # the curve's own, and the ring's
    low = drawn(replace(ratio(1.0), worst=(Point(1.0, 0.0, False, True),)))
    assert float(found(low, "worst")[0].get("cy")) == BOTTOM  # inside, though the curve never went there


def test_marks_are_lines_with_a_shape_and_a_word() -> None:
    marks = (Mark("halt", 30.0, "halted: a"), Mark("signal", 31.0, "SIGTERM"), Mark("recovered", 50.0, "recovered"))
    svg = drawn(ratio(1.0), replace(LINE, marks=marks))
    assert [one.text for one in found(svg, "mark-name")] == ["halted: a", "SIGTERM", "recovered"]
    assert len({one.get("d") for one in found(svg, "shape")}) == 3  # told apart without colour
    heights = [float(one.get("y")) for one in found(svg, "mark-name")]
    assert heights[0] < heights[1] and heights[2] == heights[0]  # what would overlap goes a row down
    assert float(svg.get("viewBox").split()[3]) > heights[1]


def test_a_narrow_chart_keeps_its_marks_inside() -> None:
    marks = (Mark("halt", 60.0, "halted: bystanders-unharmed"),)
    svg = drawn(ratio(1.0), replace(LINE, marks=marks), WIDTHS["narrow"])
    (name,) = found(svg, "mark-name")
    assert float(name.get("x")) + 7.1 * len(name.text) <= WIDTHS["narrow"]
    assert len(found(svg, "tick")) < len(found(drawn(ratio(1.0)), "tick"))


@pytest.mark.parametrize(
    "values", [(), (None,), (0.0,), (1e30, -1e30), (1e-300, 2e-300), (-5.0, -3.0), (3.0, 7.0), (0.98, 1.0)]
)
@pytest.mark.parametrize("unit", ["ratio", "s", "requests"])
@pytest.mark.parametrize("end", [0.0, 1e-9, 60.0, 1e30])
def test_any_numbers_make_a_chart(values: tuple[float, ...], unit: str, end: float) -> None:
    objective = replace(OBJECTIVE, threshold=None if values == () else values[0])
    svg = drawn(Series(objective, unit, points(*values), ()), replace(LINE, end=end))
    for one in svg.iter():
        for told in (one.get(name) for name in ("x", "y", "x1", "y1", "width", "cx", "cy")):
            assert told is None or -1 <= float(told) <= WIDTHS["wide"]
        assert "nan" not in one.get("d", "") and "inf" not in one.get("d", "")


def test_many_points_are_thinned_and_the_worst_of_each_place_stays() -> None:
    values = [0.9] * 50_000
    values[33_333] = 0.1
    told = Series(OBJECTIVE, "ratio", points(*values), ())
    svg = drawn(told, replace(LINE, end=50_000.0))
    assert sum(one.get("d", "").count("L") for one in found(svg, "curve")) < 2000
    assert found(svg, "unmet")[0].get("d").count("M") == 1
    high = Series(replace(OBJECTIVE, comparison="lte"), "ratio", tuple(replace(p, met=True) for p in told.points), ())
    places = found(drawn(high, replace(LINE, end=50_000.0)), "curve")[0].get("d")
    assert len({place.split()[1] for place in places[1:].split("L")}) == 1  # the dip is the best of its place here


def test_gaps_that_come_and_go_for_hours_are_one() -> None:
    gaps = tuple(Span("no data", 2.0 * at, 2.0 * at + 1.0) for at in range(10_000))
    svg = drawn(Series(OBJECTIVE, "ratio", points(0.9), gaps), replace(LINE, end=20_000.0))
    assert len(found(svg, "gap")) == 1
    apart = (Span("no data", 0.0, 5.0), Span("no data", 30.0, 40.0))
    assert len(found(drawn(Series(OBJECTIVE, "ratio", points(0.9), apart), replace(LINE, end=100.0)), "gap")) == 2
