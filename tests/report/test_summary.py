"""summary.json says what its schema says, of every kind of run."""

import json
from collections.abc import Callable

from jsonschema import Draft202012Validator

from chaos_mm.report.folder import RunReport
from chaos_mm.report.summary import summary
from tests.report.samples import DEVIATED, NOT_EXERCISED, PASSED, STORIES
from tests.report.schema_page import schema


def test_it_keeps_to_its_schema(told: Callable[..., RunReport]) -> None:
    found = summary([told(story) for story in STORIES])
    Draft202012Validator(schema("summary")).validate(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_one_run(told: Callable[..., RunReport]) -> None:
    (run,) = summary([told(DEVIATED)])["runs"]
    assert (run["experiment"], run["verdict"], run["words"], run["exit_code"]) == (
        "image-noise",
        "deviated",
        ["deviated"],
        1,
    )
    assert run["hits"] == {"matched": 57, "applied": 57, "errored": 0} and run["recovery_seconds"] == 6.4
    assert run["achieved"]["psnr_db"] == {"count": 57, "mean": 9.62, "min": 9.2, "max": 10.1}
    assert set(run["slis"]) == {"baseline", "fault", "recovery"}
    assert run["slis"]["fault"]["picture-answers"]["met"] is False


def test_the_exit_code_is_the_highest(told: Callable[..., RunReport]) -> None:
    assert summary([told(PASSED), told(NOT_EXERCISED), told(DEVIATED)])["exit_code"] == 3
    assert summary([]) == {"schema": 1, "runs": [], "exit_code": 0}
