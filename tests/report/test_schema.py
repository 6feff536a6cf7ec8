"""What is written keeps to the documented schemas, and the documentation is made from them."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from chaos_mm.report.words import WORDS
from tests.report.schema_page import NAMES, PAGE, schema, written

# Written by the package itself, at its end or when its disk was full; the stories hold every other event.
NOT_IN_STORIES = {"refused", "rollback", "kept", "dropped"}


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_one_and_knows_the_words(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    told = json.dumps(schema(name))
    assert all(f'"{word}"' in told for word in WORDS)


def test_verdicts_and_summary_keep_to_their_schema(reports: Path) -> None:
    found = list(reports.glob("*/verdict.json"))
    assert len(found) == 5
    for path in found:
        Draft202012Validator(schema("verdict")).validate(json.loads(path.read_text()))
    Draft202012Validator(schema("summary")).validate(json.loads((reports / "summary.json").read_text()))


def test_events_keep_to_their_schema(reports: Path) -> None:
    validator, seen = Draft202012Validator(schema("events")), set()
    for path in reports.glob("*/events.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            event = json.loads(line)
            seen.add(event["event"])
            validator.validate(event)
    assert seen == set(schema("events")["properties"]["event"]["enum"]) - NOT_IN_STORIES


@pytest.mark.parametrize(
    "change", [{"verdict": "fine"}, {"exit_code": 256}, {"hits": {}}, {"surprise": 1}, {"words": "passed"}]
)
def test_what_is_wrong_is_refused(reports: Path, change: dict[str, object]) -> None:
    told = json.loads(next(reports.glob("*/verdict.json")).read_text())
    assert not Draft202012Validator(schema("verdict")).is_valid({**told, **change})


def test_the_page_is_fresh() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert written(text) == text, "stale: python -m tests.report.schema_page"
