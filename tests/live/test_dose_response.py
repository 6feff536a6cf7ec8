"""Damage grows with the dose on the real model, through the real proxy: 300 canaries a dose, Wilson intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from chaos_mm.load.canaries import CanarySettings
from chaos_mm.load.send import send_canaries
from chaos_mm.sli.records import Record
from chaos_mm.sli.statistics import wilson
from tests.live.conftest import Service

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
COUNT = 300


@dataclass(frozen=True)
class Point:
    """One dose: its exact matches and their 95 % interval."""

    dose: float
    exact: int
    achieved: dict[str, Any]

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.exact, COUNT)

    def __str__(self) -> str:
        low, high = self.interval
        figures = ", ".join(f"{name} {tally['mean']:.3g}" for name, tally in self.achieved.items())
        return f"{self.dose:g}: {self.exact / COUNT:.3f} [{low:.3f}, {high:.3f}] {figures}"


async def ask(service: Service, kind: str, settings: CanarySettings | None = None) -> list[Record]:
    """The same 300 canaries each time, so that doses are compared on the same requests."""
    records = await send_canaries(
        service.url, kind, COUNT, service.key, run="dose", seed=11, settings=settings, stream=False, concurrency=16
    )
    assert not [r for r in records if not r.ok], "every request must be answered: the fault degrades, it does not break"
    return records


async def curve(
    service: Service, fault: str, dose: str, doses: Sequence[float], kind: str, **params: Any
) -> list[Point]:
    """Exact matches at each dose; every dose above zero must hit all 300, but for a hole that fell into silence."""
    points = []
    for value in doses:
        with service.inject(fault, {dose: value, **params}, seed=5) as injection:
            records = await ask(service, kind)
        evidence = injection.evidence
        assert evidence["matched"] == COUNT
        assert (evidence["applied"] >= 0.98 * COUNT) if value else (evidence["applied"] == 0)
        assert evidence["errored"] == 0
        points.append(Point(value, sum(r.exact is True for r in records), evidence["achieved"]))
    print(f"\n{fault} {params or ''} on {kind}\n  " + "\n  ".join(map(str, points)))
    return points


def assert_monotone_and_disjoint(points: list[Point]) -> None:
    for weaker, stronger in zip(points, points[1:], strict=False):
        # Within noise: the stronger dose's interval must not lie above the weaker's.
        assert stronger.interval[0] <= weaker.interval[1], f"{stronger} is above {weaker}"
    assert points[-1].interval[1] < points[0].interval[0], f"{points[-1]} overlaps {points[0]}"


async def test_image_noise(service: Service):
    points = await curve(service, "image_noise", "sigma", [0, 0.05, 0.1, 0.2, 0.4], "image")
    assert points[0].exact / COUNT >= 0.97
    assert_monotone_and_disjoint(points)


async def test_audio_spectral_mask(service: Service):
    points = await curve(service, "audio_spectral_mask", "share", [0, 0.1, 0.2, 0.4, 0.6], "audio")
    assert points[0].exact / COUNT >= 0.95
    assert_monotone_and_disjoint(points)


@pytest.mark.parametrize(
    "side", ["tail", pytest.param("head", marks=pytest.mark.long), pytest.param("both", marks=pytest.mark.long)]
)
async def test_text_token_truncation(service: Service, side: str):
    points = await curve(service, "text_token_truncation", "share", [0, 0.15, 0.3, 0.5], "image", side=side)
    assert points[0].exact / COUNT >= 0.97
    assert_monotone_and_disjoint(points)


@pytest.mark.parametrize(("place", "side"), [("after", "tail"), ("before", "head")])
async def test_cutting_padding_changes_nothing(service: Service, place: str, side: str):
    """The same share of tokens, but of sentences that mean nothing: it is the question that matters."""
    settings = CanarySettings(padding=4, padding_place=place)
    clean = await ask(service, "image", settings)
    with service.inject("text_token_truncation", {"share": 0.5, "side": side}) as injection:
        cut = await ask(service, "image", settings)
    assert injection.evidence["applied"] == COUNT
    exact = [sum(r.exact is True for r in records) for records in (clean, cut)]
    print(f"\npadding {place}: {exact[0]} exact of {COUNT}, with its half cut {exact[1]}")
    assert exact[0] / COUNT >= 0.97
    assert exact[1] >= exact[0] - 3
