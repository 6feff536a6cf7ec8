"""A chart of one objective over time as inline SVG; colours are the page's, by class, so that dark and print work."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos_mm.report.svg import Markup, Scale, element, path, ticks, write
from chaos_mm.report.timeline import Mark, Point, Series, Span, Timeline
from chaos_mm.report.wording import bound, clipped, value

__all__ = ["WIDTHS", "chart"]

WIDTHS = {"wide": 860, "narrow": 340}  # one of the two is shown: text keeps its size on a phone
_LEFT, _RIGHT, _TOP, _PLOT, _AXIS, _LANE = 52.0, 10.0, 22.0, 136.0, 20.0, 16.0
_LETTER, _CAPITAL = 7.1, 8.8  # widths of letters, for placing labels
_MARK_SHAPES = {"halt": "M-4-4H4V4H-4Z", "signal": "M0-5L5 4H-5Z", "recovered": "M-5 0L-1.5 4L5-4"}


@dataclass(frozen=True)
class _Frame:
    """Where things lie: ``x`` takes seconds, ``y`` the SLI's value."""

    width: float
    x: Scale
    y: Scale
    unit: str
    line: Timeline
    identity: str

    @property
    def bottom(self) -> float:
        return _TOP + _PLOT


def chart(told: Series, line: Timeline, *, width: float, identity: str, description: str) -> Markup:
    """The SVG, ``width`` units wide. ``identity`` makes its ids unique in the page, ``description`` is read aloud."""
    frame = _frame(told, line, width, identity)
    lanes = _lanes(line.marks, frame)
    height = _TOP + _PLOT + _AXIS + _LANE * (1 + max((lane for _, lane in lanes), default=-1)) + 2
    parts = [
        element("title", write(f"{clipped(told.objective.name, 80)} over time"), id=f"{identity}-title"),
        element("desc", write(description), id=f"{identity}-desc"),
        _hatching(identity),
        *_backdrop(frame),
        *_axes(frame),
        *(_gap(span, frame) for span in _merged(told.gaps, frame)),
        *_threshold(told, frame),
        *_curve(told, frame),
        *itertools.chain.from_iterable(_judged(point, frame) for point in told.worst),
        *itertools.chain.from_iterable(_mark(mark, lane, frame) for mark, lane in lanes),
    ]
    names = f"{identity}-title {identity}-desc"
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *parts, viewBox=box, role="img", aria_labelledby=names, class_="chart")


def _frame(told: Series, line: Timeline, width: float, identity: str) -> _Frame:
    low, high = _range(told)
    x = Scale(0.0, max(line.end, 1.0), _LEFT, width - _RIGHT)
    return _Frame(width, x, Scale(low, high, _TOP + _PLOT, _TOP), told.unit, line, identity)


def _range(told: Series) -> tuple[float, float]:
    """Lowest and highest value shown: all values and the threshold, some room, and 100 % at the top for a ratio."""
    seen = [point.value for point in (*told.points, *told.worst) if point.value is not None]
    seen += [told.objective.threshold] if told.objective.threshold is not None else []
    if told.unit == "ratio" and all(0 <= one <= 1 for one in seen):
        low = min(seen, default=0.0)
        return max(0.0, low - max(0.02, 0.2 * (1 - low))), 1.0
    low, high = min(0.0, *seen, 0.0), max(0.0, *seen, 0.0)
    room = 0.15 * (high - low)
    return low - (room if low < 0 else 0.0), high + (room or 1.0)


def _hatching(identity: str) -> Markup:
    stripe = element("path", d="M0 6L6 0", class_="hatch")
    size = {"width": 6, "height": 6, "patternUnits": "userSpaceOnUse"}
    return element("defs", element("pattern", stripe, id=f"{identity}-hatch", **size))


def _backdrop(frame: _Frame) -> Iterator[Markup]:
    """The time under fault as a shade, and the phases: a line where each begins and its name above."""
    for span in frame.line.faults:
        x, end = frame.x(span.start), frame.x(span.end)
        yield element("rect", x=x, y=_TOP, width=max(1.0, end - x), height=_PLOT, class_="under-fault")
    for span in frame.line.phases:
        x, room = frame.x(span.start), frame.x(span.end) - frame.x(span.start)
        yield element("line", x1=x, x2=x, y1=_TOP - 14, y2=frame.bottom, class_="phase")
        name = clipped(span.name, 24)
        if len(name) * _LETTER + 6 <= room:
            yield element("text", write(name), x=x + 5, y=_TOP - 6, class_="phase-name")


def _axes(frame: _Frame) -> Iterator[Markup]:
    for tick in ticks(frame.y.low, frame.y.high, 4):
        y = frame.y(tick)
        yield element("line", x1=_LEFT, x2=frame.width - _RIGHT, y1=y, y2=y, class_="grid")
        label = {"x": _LEFT - 7, "y": y + 4, "text_anchor": "end", "class_": "tick"}
        yield element("text", write(value(tick, frame.unit)), **label)
    for tick in ticks(frame.x.low, frame.x.high, int(frame.width // 75)):
        x = frame.x(tick)
        anchor = "middle" if x < frame.width - 26 else "end"
        yield element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 4, class_="axis")
        label = {"x": x if anchor == "middle" else frame.width - 2, "y": frame.bottom + 16, "text_anchor": anchor}
        yield element("text", write(f"{tick:g} s"), class_="tick", **label)
    yield element("line", x1=_LEFT, x2=frame.width - _RIGHT, y1=frame.bottom, y2=frame.bottom, class_="axis")


def _merged(gaps: Sequence[Span], frame: _Frame) -> list[Span]:
    """Gaps with less than a unit of width between them as one: an objective may come and go for hours."""
    found: list[Span] = []
    for span in sorted(gaps, key=lambda one: one.start):
        if found and frame.x(span.start) - frame.x(found[-1].end) < 1.0:
            found[-1] = Span(span.name, found[-1].start, max(span.end, found[-1].end))
        else:
            found.append(span)
    return found


def _gap(span: Span, frame: _Frame) -> Markup:
    x, end = frame.x(span.start), frame.x(span.end)
    size = {"width": max(1.0, end - x), "height": _PLOT}
    return element("rect", x=x, y=_TOP, fill=f"url(#{frame.identity}-hatch)", class_="gap", **size)


def _threshold(told: Series, frame: _Frame) -> Iterator[Markup]:
    if told.objective.threshold is None:
        return
    y = frame.y(told.objective.threshold)
    yield element("line", x1=_LEFT, x2=frame.width - _RIGHT, y1=y, y2=y, class_="threshold")
    # Beside the line, on the side where there is room and where values ought not to be.
    up = told.objective.comparison in ("lte", "lt")
    at = y - 5 if (up or y > frame.bottom - 18) and y > _TOP + 14 else y + 13
    label = {"x": _LEFT + 5, "y": at, "class_": "threshold-name"}
    yield element("text", write(bound(told.objective, told.unit)), **label)


def _curve(told: Series, frame: _Frame) -> Iterator[Markup]:
    """The line: dotted where the window reaches back into the phase before; a cross where the objective is not met."""
    shown = _thinned(told, frame)
    for part in _unbroken(shown, frame.line.end):
        for whole, run in itertools.groupby(itertools.pairwise(part), key=lambda pair: pair[1].whole):
            pairs = list(run)
            places = [(frame.x(p.at), frame.y(p.value or 0.0)) for p in (pairs[0][0], *(b for _, b in pairs))]
            yield element("path", d=path(places), class_="curve" if whole else "curve partial")
        if len(part) == 1:
            yield element("circle", cx=frame.x(part[0].at), cy=frame.y(part[0].value or 0.0), r=1.8, class_="dot")
    d = "".join(_cross(p, frame) for p in shown if p.value is not None and p.whole and not p.met)
    if d:
        yield element("path", d=d, class_="unmet")


def _judged(point: Point, frame: _Frame) -> Iterator[Markup]:
    """A ring around the worst window of a phase; with a cross in it where the objective was not met."""
    place = {"cx": frame.x(point.at), "cy": frame.y(point.value or 0.0), "r": 5}
    yield element("circle", **place, class_="worst" if point.met else "worst missed")
    if not point.met:
        yield element("path", d=_cross(point, frame), class_="unmet")


def _cross(point: Point, frame: _Frame) -> str:
    return f"M{frame.x(point.at) - 3:.1f} {frame.y(point.value or 0.0) - 3:.1f}l6 6m0-6l-6 6"


def _unbroken(points: Sequence[Point], end: float) -> Iterator[list[Point]]:
    """The points that a line may join: measured, and not far apart."""
    longest = max(3.0, 3 * end / max(1, len(points)))
    part: list[Point] = []
    for point in points:
        if part and (point.value is None or point.at - part[-1].at > longest):
            yield part
            part = []
        if point.value is not None:
            part.append(point)
    if part:
        yield part


def _thinned(told: Series, frame: _Frame) -> Sequence[Point]:
    """At most two points a unit of width: the worst of those that would fall on one place stands for all."""
    if len(told.points) <= 2 * frame.width:
        return told.points
    sign = -1.0 if told.objective.comparison in ("lte", "lt") else 1.0

    def place(point: Point) -> int:
        return int(2 * frame.x(point.at))

    def goodness(point: Point) -> tuple[bool, bool, float]:
        return point.value is not None, point.met, sign * (point.value or 0.0)

    return [min(run, key=goodness) for _, run in itertools.groupby(told.points, key=place)]


def _lanes(marks: Sequence[Mark], frame: _Frame) -> list[tuple[Mark, int]]:
    """Each mark with the row under the axis that its label has to itself."""
    ends: list[float] = []
    placed = []
    for mark in marks[:12]:
        start = _label_start(mark, frame)
        lane = next((row for row, end in enumerate(ends) if end < start), len(ends))
        ends[lane : lane + 1] = [start + _length(mark)]
        placed.append((mark, lane))
    return placed


def _length(mark: Mark) -> float:
    return sum(_CAPITAL if letter.isupper() else _LETTER for letter in mark.label) + 18


def _label_start(mark: Mark, frame: _Frame) -> float:
    return max(2.0, min(frame.x(mark.at) - 6, frame.width - _length(mark)))


def _mark(mark: Mark, lane: int, frame: _Frame) -> Iterator[Markup]:
    """A line through the plot and, under the axis, the mark's shape and name."""
    x, y = frame.x(mark.at), frame.bottom + _AXIS + _LANE * lane + 8
    start = _label_start(mark, frame)
    yield element("line", x1=x, x2=x, y1=_TOP, y2=frame.bottom, class_=f"mark {mark.kind}")
    place = f"translate({start + 6:.1f} {y:.1f})"
    yield element("path", d=_MARK_SHAPES[mark.kind], transform=place, class_=f"shape {mark.kind}")
    yield element("text", write(mark.label), x=start + 16, y=y + 4, class_="mark-name")
