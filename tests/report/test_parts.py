"""The parts of a run, made of anything."""

import pytest

from chaos_mm.report.parts import Achieved, Hits, Lease, Objective, Phase, Reason, Sample, Window, all_of, unit_of
from chaos_mm.sli.indicators import INDICATORS


@pytest.mark.parametrize("kind", [Reason, Hits, Lease, Objective, Phase, Sample])
@pytest.mark.parametrize("told", [None, 5, "x", [], {}, {"name": {}, "phases": 3, "params": "p", "matched": "many"}])
def test_each_part_is_made_of_anything(kind: type, told: object) -> None:
    assert isinstance(kind.of(told), kind)


def test_a_window_without_a_number_was_not_measured() -> None:
    assert Window.of({"measured": True, "value": 0.5, "met": True}, "ratio").measured
    assert not Window.of({"measured": True, "value": "0.5"}, "ratio").measured
    assert not Window.of({"measured": "yes", "value": 0.5}, "ratio").measured
    assert Window.of({"measured": True, "value": 0.5, "unit": "s"}, "ratio").unit == "s"


def test_what_was_achieved_by_many_and_by_one() -> None:
    tally = {"count": 3, "mean": 2.0, "min": 1.0, "max": 4.0}
    assert Achieved.all_of({"psnr_db": tally}) == (Achieved("psnr_db", 3, 2.0, 1.0, 4.0),)
    assert Achieved.all_of({"psnr_db": 9.5}) == (Achieved("psnr_db", 1, 9.5, 9.5, 9.5),)
    assert Achieved.all_of({"psnr_db": "much"}) == (Achieved("psnr_db", 0, None, None, None),)


def test_only_phases_that_there_are() -> None:
    answer = {"measured": True, "value": 1.0}
    told = {"name": "a", "sli": "ttft", "phases": {"fault": answer, "recovery": None, "other": answer}}
    assert list(Objective.of(told).phases) == ["fault"]
    assert Objective.of(told).named and not Objective.of({**told, "named": False}).named


def test_units_are_those_of_the_slis() -> None:
    assert {name: unit_of(name) for name in INDICATORS} == {name: one.unit for name, one in INDICATORS.items()}
    assert (unit_of("recovery_seconds"), unit_of("another")) == ("s", "")


def test_what_is_no_object_is_left_out() -> None:
    assert all_of(Phase, [{"name": "fault"}, 3, None]) == (Phase("fault", 0.0, None),)
    assert all_of(Phase, {"name": "fault"}) == ()


@pytest.mark.parametrize(
    ("undo", "words"),
    [
        (None, ""),
        ({"pending": True, "proven": False, "reason": "", "figures": {}}, "still under way when last heard of"),
        (
            {"pending": False, "proven": True, "reason": "", "figures": {"restored_elements": 4096.0}},
            "proven (restored_elements 4096)",
        ),
        ({"pending": False, "proven": False, "reason": "stuck", "figures": {}}, "NOT PROVEN: stuck"),
        ({"pending": False, "proven": False}, "NOT PROVEN: no reason was given"),
    ],
)
def test_how_far_an_undo_is_in_words(undo: object, words: str) -> None:
    lease = Lease.of({"undo": undo, "engine": {"fatal": "restart needed: it exits"}, "sites": {"layer 3": 2}})
    assert (lease.undo, lease.fatal, dict(lease.sites)) == (words, "restart needed: it exits", {"layer 3": 2})
