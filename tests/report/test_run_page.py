"""What the page of a run shows, before it is a page."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos_mm.report import run_page
from chaos_mm.report.events import Log
from chaos_mm.report.folder import RunReport
from chaos_mm.report.parts import Objective, Window
from chaos_mm.report.run_page import MOST_CHARTS, MOST_EVENTS, MOST_SAMPLES, page, pairs
from tests.report.samples import AUDIO, DEVIATED, HALTED, NOT_EXERCISED, PASSED


def facts(values: dict[str, Any]) -> dict[str, str]:
    return dict(values["facts_of_run"])


def test_the_facts_of_a_run(told: Callable[..., RunReport]) -> None:
    found = facts(page(told(DEVIATED)))
    assert found == {
        "Fault": "image_noise",
        "Requests changed": "57 of 57 selected",
        "Recovery": "6.4 s after release",
        "Duration": "60.7 s",
        "Exit code": "1",
        "Expected": "deviated (as it came)",
        "Left behind": "nothing",
    }
    assert facts(page(told(replace(PASSED, expect="halted"))))["Expected"] == "halted (it came otherwise)"
    assert facts(page(told(PASSED)))["Recovery"] == "at once"


def test_residue_replacement_and_dry_are_facts(told: Callable[..., RunReport]) -> None:
    run = told(PASSED)

    def with_(**more: Any) -> dict[str, str]:
        return facts(page(replace(run, told={**run.told, **more})))

    assert with_(residue={"measured": True, "live": 2})["Left behind"] == "2 live leases"
    assert with_(residue={"measured": False, "reason": "no proxy"})["Left behind"] == "not known: no proxy"
    assert "Left behind" not in with_(residue=None)
    assert "replaced" in with_(target_replaced=True)["Target"] and with_(dry="actions")["Dry run"] == "actions"


def test_the_verdict_with_its_reasons_and_other_words(told: Callable[..., RunReport]) -> None:
    verdict = page(told(HALTED))["verdict"]
    assert (verdict["word"], verdict["tone"], verdict["others"]) == ("halted", "bad", ["deviated"])
    assert [word for word, _, _ in verdict["reasons"]] == ["halted", "deviated", "deviated"]
    long = page(told(replace(PASSED, reasons=(("passed", "word " * 500),))))["verdict"]["reasons"][0]
    assert len(long[1]) <= 600 and long[2] == "word " * 500


def test_every_objective_has_a_chart_and_a_row(told: Callable[..., RunReport]) -> None:
    values = page(told(HALTED))
    assert [one["name"] for one in values["charts"]] == [one["name"] for one in values["objectives"]]
    assert [one["name"] for one in values["charts"]] == [
        "bystanders-unharmed",
        "text-answers",
        "availability",
        "no-leaks",
    ]
    assert values["phases"] == ["baseline", "fault", "recovery"]
    row = values["objectives"][1]
    assert (row["bound"], row["window"], row["role"]) == (
        "at least 50 %",
        "in every 10\u00a0s, at least 5 requests",
        "judged",
    )
    assert row["cells"]["fault"]["state"] == "not met" and row["cells"]["fault"]["count"] == "n = 30"
    assert values["objectives"][3]["role"] == "guard only"
    assert (
        "4 windows not met" in values["charts"][1]["wide"]
        and "under fault from 20.4 s to 34.3 s" in values["charts"][1]["wide"]
    )


def test_a_cell_without_data_says_why(told: Callable[..., RunReport]) -> None:
    blind = Window.of({"measured": False, "reason": "load <gone>", "windows": 4, "without_data": 4}, "ratio")
    one = replace(Objective.of({"name": "a", "comparison": "gte", "threshold": 1}), phases={"fault": blind})
    cell = page(replace(told(PASSED), objectives=(one,)))["objectives"][0]["cells"]["fault"]
    assert (cell["value"], cell["state"]) == ("no data", "no data")
    assert cell["notes"] == ["4 of 4 without data", "load <gone>"]


def test_evidence_of_each_lease(told: Callable[..., RunReport]) -> None:
    (lease,) = page(told(PASSED))["leases"]
    assert dict(lease["facts"])["Parameters"] == "sigma = 0.2" and dict(lease["facts"])["Ended by"] == "release"
    assert dict(lease["counts"]) == {"selected": "57", "changed": "57", "failed": "0", "needed to count": "28"}
    first = lease["achieved"][0]
    assert (first["name"], first["unit"], first["mean"], first["low"], first["high"]) == (
        "PSNR",
        "dB",
        "14.31",
        "13.9",
        "14.8",
    )


def test_pictures_and_spectrograms(told: Callable[..., RunReport]) -> None:
    (image,) = page(told(PASSED))["samples"]
    assert [side["picture"].uri[:22] for side in image["sides"]] == ["data:image/png;base64,"] * 2
    assert [side["sound"] for side in image["sides"]] == [None, None] and image["axes"] == {}
    (audio,) = page(told(AUDIO))["samples"]
    assert audio["axes"] == {"seconds": "2.56 s", "frequency": "8 kHz", "levels": "−80 to 0 dB of full scale"}
    assert all(side["sound"].uri.startswith("data:audio/wav") for side in audio["sides"])


def test_spectrograms_without_axes_are_pictures(told: Callable[..., RunReport]) -> None:
    run = told(AUDIO)
    (sample,) = page(replace(run, samples=(replace(run.samples[0], axes={"seconds": "2"}),)))["samples"]
    assert sample["axes"] == {} and sample["sides"][0]["picture"].problem == ""


def test_texts_are_compared(told: Callable[..., RunReport]) -> None:
    run = told(NOT_EXERCISED)
    (run.folder / "b.txt").write_text("say 4071 now")
    (run.folder / "a.txt").write_text("say 4071")
    sample = replace(told(PASSED).samples[0], kind="text", before="b.txt", after="a.txt")
    (shown,) = page(replace(run, samples=(sample,)))["samples"]
    assert shown["texts"] == ([(False, "say 4071"), (True, " now")], [(False, "say 4071")]) and shown["problems"] == []


def test_slis_over_whole_phases(told: Callable[..., RunReport]) -> None:
    table = page(told(PASSED))["slis"]
    assert table["phases"] == ["baseline", "fault", "recovery"]
    assert [name for name, _ in table["rows"]] == ["canary_exact", "ok_ratio", "bystander_ok", "leak_count"]
    assert all(len(cells) == 3 for _, cells in table["rows"])


def test_events_without_samples_and_not_without_end(told: Callable[..., RunReport]) -> None:
    run = told(PASSED)
    names = [name for _, name, _ in page(run)["events"]]
    assert "sample" not in names and names[0] == "run" and names[-1] == "verdict"
    many = Log(tuple({"event": "stop", "t": at} for at in range(MOST_EVENTS + 7)))
    values = page(replace(run, log=many))
    assert len(values["events"]) == MOST_EVENTS and values["more_events"] == 7


def test_pairs_are_texts_of_bounded_length() -> None:
    assert pairs({"a": 1, "b": None, "c" * 999: "x" * 999, "d": {"e": [1]}})[3] == ("d", '{"e": [1]}')
    assert all(len(name) <= 80 and len(said) <= 300 for name, said in pairs({"c" * 999: "x" * 999}))


def test_an_empty_run_has_a_page(told: Callable[..., RunReport]) -> None:
    run = replace(told(PASSED), told={}, log=Log(), leases=(), phases=(), objectives=(), samples=(), slis={})
    values = page(run)
    assert values["charts"] == [] and values["events"] == [] and values["started"] == "at an unknown time"


def test_a_page_holds_no_more_samples_than_can_be_opened(
    told: Callable[..., RunReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = told(PASSED)
    many = page(replace(run, samples=run.samples[:1] * 1000))
    assert len(many["samples"]) == MOST_SAMPLES and many["notes"] == (
        f"{1000 - MOST_SAMPLES} samples are only in the folder, not on this page",
    )
    monkeypatch.setattr(run_page, "MOST_MEDIA_CHARACTERS", 100)
    assert page(run)["samples"] == [] and "only in the folder" in page(run)["notes"][-1]


def test_no_more_charts_than_can_be_looked_at(told: Callable[..., RunReport]) -> None:
    run = told(PASSED)
    many = page(replace(run, objectives=run.objectives[:1] * 100))
    assert len(many["charts"]) == MOST_CHARTS and len(many["objectives"]) == 100
