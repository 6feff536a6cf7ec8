"""The shipped experiments keep the rules of the house."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.lint import lint
from chaos_mm.faults import catalogue
from chaos_mm.sli import objectives
from tests.edge.chaos import REPOSITORY, Chaos

FILES = sorted((REPOSITORY / "experiments").glob("*.json"))
ALL = sorted(set(FILES) | {p for p in (REPOSITORY / "experiments").glob("*/*.json") if p.parent.name != "controls"})
OBJECTIVES = REPOSITORY / "experiments" / "objectives"
WAITS_ARE_SHARED = {"attention_delay", "attention_timeout", "attention_hang", "attention_error"}
PHASES = ("baseline_seconds", "fault_seconds", "recovery_seconds")


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def body(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def functions(activities: list[dict[str, Any]]) -> list[str]:
    return [one["provider"]["func"] for one in activities]


def test_there_is_one_for_each_of_the_first_faults() -> None:
    assert {path.stem for path in FILES} >= {"image-noise", "audio-spectral-mask", "text-token-truncation"}


def test_each_kind_of_machine_has_its_folder() -> None:
    """What the demo target must lose, sweeps, and what needs an engine, a device or a job that the demo has not."""
    folders = {path.parent.name for path in (REPOSITORY / "experiments").glob("*/*.json")}
    assert folders == {"breaking", "controls", "gpu", "sweeps", "training", "vllm"}


def test_it_is_valid(chaos: Chaos, path: Path) -> None:
    got = chaos.validate(path)
    assert got.status == 0, got.output


def test_it_is_watched_and_always_rolls_back(body: dict[str, Any]) -> None:
    assert [c["provider"]["module"] for c in body["controls"]] == ["chaos_mm.controls.verdict"]
    assert body["runtime"] == {"hypothesis": {"strategy": "default"}, "rollbacks": {"strategy": "always"}}


def test_every_injection_is_released_in_method_and_rollbacks(body: dict[str, Any]) -> None:
    injected = [f.removeprefix("inject_") for f in functions(body["method"]) if f.startswith("inject_")]
    assert injected
    for part in ("method", "rollbacks"):
        released = [one["provider"]["arguments"]["lease"] for one in body[part] if one["provider"]["func"] == "release"]
        assert set(released) == set(injected)


@pytest.mark.parametrize("file", ALL, ids=[str(path.relative_to(REPOSITORY / "experiments")) for path in ALL])
def test_every_file_of_every_folder_keeps_the_strict_rules(file: Path) -> None:
    assert list(lint(json.loads(file.read_text()), {"CHAOS_MM_OBJECTIVES": str(OBJECTIVES)})) == []


@pytest.mark.parametrize("file", ALL, ids=[str(path.relative_to(REPOSITORY / "experiments")) for path in ALL])
def test_what_must_break_expects_it_and_nothing_else_does(file: Path) -> None:
    (control,) = json.loads(file.read_text())["controls"]
    expected = control["provider"].get("arguments", {}).get("expect", "")
    assert expected == ("deviated" if file.parent.name == "breaking" else "")


def test_it_names_objectives_and_no_numbers(body: dict[str, Any]) -> None:
    known = objectives.load(REPOSITORY / "experiments" / "objectives")
    for probe in body["steady-state-hypothesis"]["probes"]:
        judge = probe["tolerance"]["provider"]
        assert judge["func"] == "within_objective"
        assert judge["arguments"]["objective"] in known
        assert probe["provider"]["arguments"]["objective"] == judge["arguments"]["objective"]


def test_it_says_whom_it_hurts(body: dict[str, Any]) -> None:
    """Selectors are for canaries everywhere; where a fault reaches further all the same, the description says so."""
    injections = [one["provider"] for one in body["method"] if one["provider"]["func"].startswith("inject_")]
    assert {one["arguments"]["selector"] for one in injections} == {"canary"}
    faults = [catalogue()[one["func"].removeprefix("inject_")] for one in injections]
    shared = not all(f.selectable for f in faults) or {f.name for f in faults} & WAITS_ARE_SHARED
    assert ("Only canaries are touched" in body["description"]) is not bool(shared)
    assert ("--allow-live --max-rate 1" in body["description"]) is bool(shared)


def test_its_phases_and_doses_can_be_set_from_outside(body: dict[str, Any]) -> None:
    configuration = body["configuration"]
    assert [configuration[phase]["env_var_type"] for phase in PHASES] == ["float"] * 3
    for one in body["method"]:
        name = one["provider"]["func"].removeprefix("inject_")
        if name in catalogue():
            given = one["provider"]["arguments"]
            specs = {p: spec for p, spec in catalogue()[name].params.items() if p in given and not spec.choices}
            assert {given[p] for p in specs} <= {f"${{{key}}}" for key in configuration}


def test_it_waits_in_hold_and_never_in_a_pause(body: dict[str, Any]) -> None:
    assert "hold" in functions(body["method"])
    assert not [one for one in body["method"] if "pauses" in one]


def test_it_ends_well_before_its_lease(body: dict[str, Any]) -> None:
    lengths = [body["configuration"][phase]["default"] for phase in PHASES]
    assert sum(lengths) <= 120
    assert lengths[1] + 30 <= body["configuration"]["ttl_seconds"]
