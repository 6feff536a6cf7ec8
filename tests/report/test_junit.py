"""junit.xml, held to the schema of its format and read back by a second library."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import junitparser
import pytest
from lxml import etree

from chaos_mm.report.folder import RunReport, read
from chaos_mm.report.junit import junit
from chaos_mm.report.parts import Reason
from chaos_mm.report.words import WORDS
from tests.report.hostile import TEXTS
from tests.report.samples import STORIES

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))


def suite_of(runs: list[RunReport]) -> junitparser.TestSuite:
    data = junit(runs)
    SCHEMA.assertValid(etree.fromstring(data))
    (suite,) = junitparser.JUnitXml.fromstring(data)
    return suite


def kind(case: junitparser.TestCase) -> str:
    (one,) = case.result or [None]
    return "passed" if one is None else type(one).__name__.lower()


def test_each_word_has_its_outcome(tmp_path: Path) -> None:
    runs = []
    for word in WORDS:
        folder = tmp_path / word
        folder.mkdir()
        (folder / "verdict.json").write_text(json.dumps({"verdict": word, "experiment": word}))
        runs.append(read(folder))
    suite = suite_of(runs)
    outcomes = {case.name: kind(case) for case in suite}
    expected = {"passed": "passed", "dry": "skipped", "deviated": "failure", "halted": "failure"}
    assert outcomes == {word: expected.get(word, "error") for word in WORDS}
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (11, 2, 7, 1)


def test_a_real_reports_folder(told: Callable[..., RunReport]) -> None:
    suite = suite_of([told(story) for story in STORIES])
    names = [case.name for case in suite]
    assert names == [
        "image-noise",
        "image-noise (2)",
        "text-token-truncation",
        "image-noise (3)",
        "audio-spectral-mask",
    ]
    failed = [one for case in suite for one in case.result if kind(case) == "failure"]
    assert [one.type for one in failed] == ["deviated", "halted"]
    assert (
        failed[0].message.startswith("picture-answers: canary_exact is 0.08")
        and "6.4 s after release" in failed[0].text
    )
    assert suite.time == pytest.approx(sum(case.time for case in suite)) and suite.timestamp == "2026-11-30T09:00:00"


def test_a_line_of_each_run_stands_below(told: Callable[..., RunReport]) -> None:
    runs = [told(story) for story in STORIES]
    lines = (etree.fromstring(junit(runs)).findtext("system-out") or "").splitlines()
    assert [line.partition(":")[0] for line in lines] == [run.folder.name for run in runs]
    assert lines[1].endswith("deviated, changed 57 of 57 selected requests, exit code 1")


def test_no_runs_is_an_empty_suite() -> None:
    assert suite_of([]).tests == 0


@pytest.mark.parametrize("text", TEXTS)
def test_hostile_text_stays_text(told: Callable[..., RunReport], text: str) -> None:
    run = told(STORIES[1])
    hostile = replace(run, told={**run.told, "experiment": text, "started": text})
    hostile = replace(hostile, reasons=(Reason("deviated", hostile.text("experiment")),))
    (case,) = suite_of([hostile])
    assert case.name and kind(case) == "failure"


def test_numbers_beyond_reason_are_still_decimal(told: Callable[..., RunReport]) -> None:
    run = told(STORIES[0])
    for seconds in (1e30, -5, None, "x"):
        assert suite_of([replace(run, told={**run.told, "duration_seconds": seconds})]).time >= 0
