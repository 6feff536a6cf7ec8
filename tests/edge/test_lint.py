"""Every rule for experiment files: a good file breaks none, and each way of breaking one is named."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.controls.lint import RULES, lint
from chaos_mm.controls.refusals import wrong_in_file
from tests.edge.chaos import REPOSITORY
from tests.edge.chaos import activity as entry

SHIPPED = sorted((REPOSITORY / "experiments").rglob("*.json"))
EXPERIMENTS = [path for path in SHIPPED if "method" in json.loads(path.read_text())]
GOOD = json.loads((REPOSITORY / "experiments" / "image-noise.json").read_text())
INJECT, HOLD, HITS, SLI, _, RELEASE = range(6)
Change = Callable[[dict[str, Any]], Any]


def arguments(body: dict[str, Any], number: int = INJECT) -> dict[str, Any]:
    found: dict[str, Any] = body["method"][number]["provider"]["arguments"]
    return found


def gate(body: dict[str, Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = body["steady-state-hypothesis"]["probes"][number]
    return found


def judge(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = gate(body)["tolerance"]["provider"]
    return found


def http(tolerance: Any) -> dict[str, Any]:
    provider = {"type": "http", "url": "http://127.0.0.1"}
    return {"type": "probe", "name": "web", "provider": provider, "tolerance": tolerance}


def foreign(tolerance: Any, **more: Any) -> dict[str, Any]:
    provider = {"type": "python", "module": "os", "func": "getpid", **more}
    return {"type": "probe", "name": "foreign", "provider": provider, "tolerance": tolerance}


def probe(body: dict[str, Any], one: dict[str, Any]) -> None:
    body["steady-state-hypothesis"]["probes"].append(one)


BROKEN: list[tuple[str, Change]] = [
    ("shape", lambda b: b.update(method={"not": "a list"})),
    ("shape", lambda b: b.pop("method")),
    ("shape", lambda b: b["method"].append("inject")),
    ("shape", lambda b: b["method"][INJECT].update(provider=[])),
    ("shape", lambda b: b["method"][INJECT]["provider"].update(arguments=["sigma"])),
    ("shape", lambda b: b.update({"steady-state-hypothesis": []}) or b.update({"steady-state-hypothesis": ["x"]})),
    ("control-missing", lambda b: b.pop("controls")),
    ("control-missing", lambda b: b["controls"][0].update(automatic=False)),
    ("control-missing", lambda b: b["controls"][0]["provider"].update(module="chaos_mm.controls.verdikt")),
    ("control-argument", lambda b: b["controls"][0]["provider"].update(arguments={"laod_rate": 3})),
    ("rollbacks-strategy", lambda b: b["runtime"].pop("rollbacks")),
    ("rollbacks-strategy", lambda b: b["runtime"]["rollbacks"].update(strategy="default")),
    ("hypothesis-strategy", lambda b: b["runtime"].pop("hypothesis")),
    ("hypothesis-strategy", lambda b: b["runtime"]["hypothesis"].update(strategy="continuously")),
    ("inject-place", lambda b: b["rollbacks"].append(b["method"][INJECT])),
    ("ttl-missing", lambda b: arguments(b).pop("ttl_seconds")),
    ("ttl-too-short", lambda b: arguments(b).update(ttl_seconds=20)),
    ("ttl-too-short", lambda b: b["method"][RELEASE].update(pauses={"before": 300})),
    ("keepalive-missing", lambda b: arguments(b).pop("keepalive_seconds")),
    ("release-missing", lambda b: b["method"].pop(RELEASE)),
    ("release-missing", lambda b: b.pop("rollbacks")),
    ("release-missing", lambda b: b["method"].insert(INJECT, b["method"].pop(RELEASE))),
    ("release-missing", lambda b: arguments(b).update(lease="mine")),
    ("lease-unknown", lambda b: arguments(b, HITS).update(lease="image-noise")),
    ("fault-not-held", lambda b: b["method"].pop(HOLD)),
    ("background", lambda b: b["method"][INJECT].update(background=True)),
    ("background", lambda b: b["method"][RELEASE].update(background=True)),
    ("dry", lambda b: b["method"][HOLD].update(dry="actions")),
    ("dry", lambda b: b.update(dry="actions")),
    ("pauses-after", lambda b: b["method"][INJECT].update(pauses={"after": 5})),
    ("selector-live", lambda b: arguments(b).update(selector="live")),
    (
        "nothing-judged",
        lambda b: (
            b.pop("steady-state-hypothesis") and b.update(method=[b["method"][n] for n in (INJECT, HOLD, RELEASE)])
        ),
    ),
    ("objective-unknown", lambda b: arguments(b, SLI).update(objective="picture-answer")),
    ("objective-unknown", lambda b: b["configuration"].update(objectives_dir="no/such/folder")),
    ("objective-mismatch", lambda b: judge(b)["arguments"].update(objective="availability")),
    ("literal-threshold", lambda b: judge(b).update(func="at_least", arguments={"threshold": 0.9})),
    (
        "literal-threshold",
        lambda b: gate(b).update(tolerance={"type": "range", "range": [0.9, 1], "target": "value"}),
    ),
    ("phase-not-awaited", lambda b: gate(b)["provider"]["arguments"].pop("whole_phase")),
    ("phase-literal", lambda b: arguments(b, HOLD).update(seconds=20)),
    ("phase-literal", lambda b: b["method"][RELEASE].update(pauses={"before": 5})),
    ("phase-type", lambda b: b["configuration"]["fault_seconds"].pop("env_var_type")),
    ("phase-type", lambda b: b["configuration"].update(fault_seconds="20")),
    ("environment", lambda b: b["configuration"]["load_rate"].update(key="CHAOS_MM_TEST_WORD")),
    ("tolerance-shape", lambda b: gate(b).update(tolerance=[0, 1])),
    ("tolerance-shape", lambda b: gate(b).update(tolerance=True)),
    ("tolerance-shape", lambda b: probe(b, http({"type": "range", "range": [200, 299]}))),
    ("tolerance-shape", lambda b: gate(b)["tolerance"]["provider"].pop("arguments")),
    ("tolerance-shape", lambda b: judge(b).update(module="chaos_mm.probes", func="no_residue", arguments={})),
    ("tolerance-float", lambda b: gate(b).update(tolerance=0.9)),
    ("tolerance-target", lambda b: probe(b, foreign({"type": "range", "range": [0, 1], "target": "value"}))),
    ("tolerance-ignored", lambda b: b["method"][SLI].update(tolerance=True)),
    ("value", lambda b: arguments(b).update(sigma=7)),
    ("value", lambda b: arguments(b).update(sigma="${no_such}")),
    ("value", lambda b: arguments(b).update(sgima=0.1)),
    ("value", lambda b: b["configuration"].update(sigma=7)),
    ("value", lambda b: b["method"][HOLD]["provider"].update(func="hodl")),
    ("timeout-ignored", lambda b: b["method"][SLI]["provider"].update(timeout=3)),
    ("secret-literal", lambda b: b.update(secrets={"chaos_mm": {"token": "abc"}})),
    ("secret-literal", lambda b: b["configuration"].update(target_api_key="abc")),
    ("secret-literal", lambda b: probe(b, http(200)) or gate(b, 3)["provider"].update(url="http://me:abc@127.0.0.1/")),
    ("secret-literal", lambda b: probe(b, http(200)) or gate(b, 3)["provider"].update(headers={"Authorization": "x"})),
]


def broken(change: Change) -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    change(body)
    return body


def rules(body: dict[str, Any]) -> set[str]:
    return {one.rule for one in lint(body, {"CHAOS_MM_TEST_WORD": "abc"})}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=[path.stem for path in EXPERIMENTS])
def test_what_ships_breaks_no_rule(path: Path) -> None:
    assert lint(json.loads(path.read_text()), {}) == []


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BROKEN)])
def test_a_broken_rule_is_named(rule: str, change: Change) -> None:
    found = [one for one in lint(broken(change), {"CHAOS_MM_TEST_WORD": "abc"}) if one.rule == rule]
    assert found, rules(broken(change))
    for one in found:
        assert one.where or rule == "control-missing"
        assert one.wrong and one.instead and one.level == RULES[rule].level
        assert "abc" not in one.wrong or rule == "environment"
    json.dumps([one.to_json() for one in found], allow_nan=False)


def test_every_rule_has_an_example() -> None:
    assert {rule for rule, _ in BROKEN} == set(RULES)


LEVELS = {rule.level for rule in RULES.values()}


def test_the_guide_lists_every_rule_as_it_is() -> None:
    guide = (REPOSITORY / "docs" / "writing-an-experiment.md").read_text(encoding="utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("| `") and line.split(" | ")[1] in LEVELS]
    assert rows == [f"| `{name}` | {rule.level} | {rule.demand} |" for name, rule in RULES.items()]


def test_the_example_of_the_guide_is_clean() -> None:
    guide = (REPOSITORY / "docs" / "writing-an-experiment.md").read_text(encoding="utf-8")
    assert lint(json.loads(guide.partition("```json\n")[2].partition("```")[0]), {}) == []


def test_what_is_right_is_left_alone() -> None:
    right: list[Change] = [
        lambda b: arguments(b).update(sigma="${dose}") or b["configuration"].update(dose={"type": "env", "key": "X"}),
        lambda b: b["method"].__setitem__(RELEASE, entry("release_all")),
        lambda b: b["rollbacks"].__setitem__(0, entry("release_all")),
        lambda b: b.update(secrets={"chaos_mm": {"token": {"type": "env", "key": "CHAOS_MM_TOKEN"}}}),
        lambda b: probe(b, http(200)),
        lambda b: probe(b, http({"type": "range", "range": [200, 299], "target": "status"})),
        lambda b: probe(b, foreign({"type": "range", "range": [0, 10**9]})),
        lambda b: b["method"][HOLD].update(background=True) or b["method"].insert(2, b["method"][HOLD]),
        lambda b: (
            arguments(b).update(lease="mine")
            or arguments(b, HITS).update(lease="mine")
            or arguments(b, RELEASE).update(lease="mine")
            or b["rollbacks"][0]["provider"]["arguments"].update(lease="mine")
        ),
    ]
    for change in right:
        assert lint(broken(change), {}) == []


def test_a_file_without_activities_of_ours_keeps_its_own_ways() -> None:
    probes = [foreign({"type": "range", "range": [0, 10**9]}), http(200)]
    body = {"title": "t", "method": [], "steady-state-hypothesis": {"title": "t", "probes": probes}}
    assert lint(body, {}) == []


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BROKEN)])
def test_what_the_run_refuses_for_the_file_s_sake_is_an_error_here(rule: str, change: Change) -> None:
    body = broken(change)
    if rule in ("shape", "environment"):
        return  # the toolkit itself stops there
    configuration = {
        key: value.get("default") if isinstance(value, dict) else value for key, value in body["configuration"].items()
    }
    reasons = [one.reason for one in wrong_in_file(body, configuration, {})]
    assert not reasons or "error" in {one.level for one in lint(body, {"CHAOS_MM_TEST_WORD": "abc"})}, reasons


def test_strange_files_never_make_it_fall_over() -> None:
    strange: list[Any] = [None, 7, "x", [], {}, [None], {"a": None}, [[]], {"type": "python"}, True, 1.5]
    for key in (*GOOD, "secrets"):
        for value in strange:
            lint({**GOOD, key: value}, {})
    for key in ("provider", "tolerance", "pauses", "name", "background", "type"):
        for value in strange:
            body = copy.deepcopy(GOOD)
            for one in (gate(body), body["method"][INJECT], body["method"][HOLD], body["rollbacks"][0]):
                one[key] = value
            lint(body, {})
