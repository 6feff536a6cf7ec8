"""What the signal handlers, the exit status and the agent's report rest on inside the toolkit, on each version of it.

Not only that the private names are there, but that they stand where the handlers look for them.
"""

import importlib
from typing import Any

import click
import pytest
from chaoslib.experiment import run_experiment

from chaos_mm.controls.signals import BETWEEN
from tests.truth import places
from tests.truth.experiments import ALWAYS, activity
from tests.truth.play import newest

pytestmark = pytest.mark.truth


def look(moment: str, type: str = "action", **more: Any) -> dict[str, Any]:
    found = activity("look", module="tests.truth.places", type=type, moment=moment)
    return {**found, "name": moment, **more}


def play() -> tuple[dict[str, str], dict[str, Any]]:
    """(where the engine seemed to be, by moment; the journal)"""
    places.SEEN.clear()
    body = {
        "title": "where",
        "description": "where",
        "controls": [{"name": "places", "provider": {"type": "python", "module": "tests.truth.places"}}],
        "steady-state-hypothesis": {"title": "fine", "probes": [look("gate", "probe", tolerance=True)]},
        "method": [look("action")],
        "rollbacks": [look("undo")],
        "runtime": ALWAYS,
    }
    journal = run_experiment(body, settings={"runtime": ALWAYS})
    return dict(places.SEEN), journal


def test_the_engine_is_where_the_handlers_believe_it_to_be() -> None:
    where, journal = play()
    assert journal["status"] == "completed"
    assert {moment: where[moment] for moment in ("gate", "action")} == {"gate": "activity", "action": "activity"}
    assert {where[moment] for moment in ("before experiment", "before hypothesis", "before method")} == {"between"}
    assert where["undo"] == where["before undo"] == "rollback"
    assert where["before rollbacks"] == "rollback"
    assert where["after experiment"] == "outside"


def test_each_private_name_is_there() -> None:
    run, one, control = (importlib.import_module(f"chaoslib.{name}") for name in ("run", "activity", "control"))
    for name in ("run_gate_hypothesis", "run_method", "run_deviation_validation_hypothesis"):
        assert callable(getattr(run, name))
        assert name in BETWEEN
    assert callable(importlib.import_module("chaoslib.rollback").run_rollbacks)
    assert callable(run.run_rollback)
    assert callable(one.execute_activity)
    assert callable(control.Control.begin)


def test_the_journal_has_what_the_verdict_writes_into() -> None:
    journal = play()[1]
    assert set(journal["steady_states"]) >= {"before", "after", "during"}
    assert {"status", "deviated", "run", "rollbacks", "experiment"} <= set(journal)


def test_the_command_line_names_what_is_read_of_it() -> None:
    run = importlib.import_module("chaostoolkit.commands.run").run
    assert isinstance(run, click.Command)
    named = {parameter.name for parameter in run.params}
    assert {"journal_path", "dry", "rollback_strategy", "hypothesis_strategy", "control_file", "source"} <= named
    assert hasattr(click.Context, "call_on_close")


@pytest.mark.skipif(not newest(), reason="only the newest toolkit has a report for agents")
def test_the_agents_report_reads_the_interruption() -> None:
    from chaostoolkit import agent

    journal = {**play()[1], "status": "interrupted"}
    journal["interruption"] = {"kind": "control", "name": "verdict", "reason": "not_exercised: no hits"}
    report = agent.run_report(journal, source="x", journal_path="journal.json", exit_code=3)
    assert (report["outcome"], report["conclusive"]) == ("interrupted", False)
    assert report["interrupted_by"]["reason"] == "not_exercised: no hits"
