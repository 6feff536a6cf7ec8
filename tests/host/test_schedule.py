"""What to hold at a moment, in closed form."""

import pytest

from chaos_mm.host.schedule import Schedule

GIB = 1 << 30


def test_the_level_is_a_share_of_what_is_free_above_the_floor():
    assert Schedule(share=0.5).level(8 * GIB) == 4 * GIB
    assert Schedule(share=1.0, floor_bytes=GIB).level(8 * GIB) == 7 * GIB
    assert Schedule(share=0.5, floor_bytes=6 * GIB).level(8 * GIB) == 2 * GIB
    assert Schedule(floor_bytes=9 * GIB).level(8 * GIB) == 0


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (Schedule(share=0.5, ramp_seconds=4), {0: 0, 1: 1, 2: 2, 4: 4, 100: 4}),
        (Schedule(share=0.5), {0: 4, 1: 4}),
        (Schedule("spike", 0.5, period_seconds=2), {0: 4, 0.9: 4, 1: 0, 1.9: 0, 2: 4, 3.5: 0}),
        (Schedule("spike", 0.5, ramp_seconds=4, period_seconds=2), {2: 2, 4: 4, 5: 0, 6: 4}),
        (Schedule("leak", 0.5, rate_bytes=GIB), {0: 0, 1: 1, 3: 3, 4: 4, 9: 4}),
        (Schedule("fragment", 0.5, ramp_seconds=4), {0: 0, 2: 2, 9: 4}),
    ],
)
def test_what_is_wanted_over_time_of_8_gib_free(schedule: Schedule, wanted: dict[float, float]):
    assert {at: schedule.wanted(at, 8 * GIB) / GIB for at in wanted} == wanted


def test_a_leak_is_at_work_from_its_first_block_and_a_fill_from_its_level():
    assert not Schedule("leak", rate_bytes=1).begun(9, GIB, 0)
    assert Schedule("leak", rate_bytes=1).begun(9, GIB, 1)
    assert not Schedule(share=0.5).begun(9, 8 * GIB, 4 * GIB - 1)
    assert not Schedule(share=0.5, ramp_seconds=10).begun(9, 8 * GIB, 4 * GIB)
    assert Schedule(share=0.5).begun(0, 8 * GIB, 4 * GIB)


def test_it_survives_the_way_to_the_child():
    schedule = Schedule("spike", 0.25, 7, 1.5, 9, 3.0, 11)
    assert Schedule.from_json(schedule.to_json()) == schedule
