"""A verdict that may be believed comes out the same every time: the demo's runs, again and again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_mm.demo.experiments import planned
from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.sequence import run_all
from tests.demos import OwnDemo

pytestmark = [pytest.mark.repeats]
SHORT_SECONDS = "8"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[OwnDemo]:
    made = OwnDemo(tmp_path)
    yield made
    made.close()


def told(ended: Ended) -> str:
    reasons = "; ".join(str(one.get("reason")) for one in ended.verdict.get("reasons", []))
    return f"{ended.planned.name} {' '.join(ended.planned.options)}: {ended.word} ({reasons})"


def repeat(demo: OwnDemo, one: Planned, times: int, **lengths: str) -> None:
    said: list[str] = []
    environment = {**demo.environment, **lengths}
    ended = run_all([one] * times, reports_dir=demo.reports, environment=environment, show=said.append)
    assert len(ended) == times
    assert [told(run) for run in ended if run.word != (one.expect or "passed")] == [], "\n".join(said)


@pytest.mark.parametrize("one", planned(), ids=lambda one: "-".join((one.name, *one.expect.split())))
@pytest.mark.timeout(600)
def test_three_short_runs_say_the_same(demo: OwnDemo, one: Planned) -> None:
    lengths = {f"CHAOS_MM_{phase}_SECONDS": SHORT_SECONDS for phase in ("BASELINE", "FAULT", "RECOVERY")}
    repeat(demo, one, 3, **lengths)


@pytest.mark.long
@pytest.mark.parametrize("one", planned(), ids=lambda one: "-".join((one.name, *one.expect.split())))
@pytest.mark.timeout(0)
def test_twenty_runs_at_full_length_say_the_same(demo: OwnDemo, one: Planned) -> None:
    repeat(demo, one, 20)
