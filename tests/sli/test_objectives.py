"""Objectives: the shipped files, bad files, and judging that fails closed."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.core.errors import BadRequest
from chaos_mm.sli import objectives
from chaos_mm.sli.indicators import INDICATORS
from chaos_mm.sli.objectives import Objective
from chaos_mm.sli.statistics import wilson

SHIPPED = objectives.load(objectives.packaged_dir())
SHARE = Objective("availability", "ok_ratio", threshold=0.99, min_samples=10)

GOOD: dict[str, Any] = {
    "apiVersion": "openslo/v1",
    "kind": "SLO",
    "metadata": {"name": "speech", "annotations": {"chaos-mm.io/window-seconds": "30", "chaos-mm.io/kind": "audio"}},
    "spec": {
        "service": "model",
        "indicator": {"metadata": {"name": "canary_exact"}, "spec": {"ratioMetric": {"rawType": "success"}}},
        "budgetingMethod": "Occurrences",
        "objectives": [{"target": 0.9}],
    },
}


def changed(path: str, value: Any) -> str:
    """GOOD as YAML with one thing changed, or left out when ``value`` is ...."""
    document = yaml.safe_load(yaml.safe_dump(GOOD))
    *parents, last = path.split("|")
    inner = document
    for key in parents:
        inner = inner[int(key) if key.isdigit() else key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return yaml.safe_dump(document)


def test_the_shipped_objectives() -> None:
    assert set(SHIPPED) >= {
        "picture-answers", "speech-answers", "text-answers", "agreement-answers", "availability", "bystanders-unharmed",
        "no-leaks", "first-token", "whole-streams",
    }  # fmt: skip
    first = SHIPPED["first-token"]
    assert (first.sli, first.comparison, first.threshold, first.filters) == (
        "ttft", "gte", 0.95, {"threshold_seconds": "2"},
    )  # fmt: skip
    leaks = SHIPPED["no-leaks"]
    assert (leaks.comparison, leaks.threshold, leaks.guard) == ("lte", 0.0, True)
    assert SHIPPED["picture-answers"].filters == {"kind": "image"}
    assert SHIPPED["bystanders-unharmed"].guard
    for objective in SHIPPED.values():
        assert objective.description
        assert objective.window_seconds >= 5
        assert objective.sli in INDICATORS


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.endswith("-answers")])
def test_a_healthy_model_passes_the_answer_objectives_with_a_margin(name: str) -> None:
    # At the fewest samples that are judged, a model that is right 97 times in 100 stays above the threshold.
    objective = SHIPPED[name]
    allowed = math.floor((1 - objective.threshold) * objective.min_samples + 1e-9)
    too_many_wrong = sum(
        math.comb(objective.min_samples, k) * 0.03**k * 0.97 ** (objective.min_samples - k)
        for k in range(allowed + 1, objective.min_samples + 1)
    )
    assert too_many_wrong < 1e-3
    assert wilson(97, 100)[0] > objective.threshold


def test_one_document() -> None:
    objective = objectives.read(yaml.safe_dump(GOOD))
    assert objective.to_json() == {
        "name": "speech",
        "sli": "canary_exact",
        "comparison": "gte",
        "threshold": 0.9,
        "window_seconds": 30.0,
        "min_samples": 1,
        "hold_seconds": 0.0,
        "guard": False,
        "filters": {"kind": "audio"},
    }


NOTES = "metadata|annotations|chaos-mm.io/"
INDICATOR = "spec|indicator|spec"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("apiVersion", "openslo/v2", "file.yaml: apiVersion is 'openslo/v2'; allowed: openslo/v1"),
        ("kind", "SLI", "file.yaml: kind is 'SLI'; allowed: SLO"),
        ("kind", ..., "file.yaml: kind is missing"),
        ("metadata|name", "Speech!", "metadata.name is 'Speech!'; allowed: lower-case"),
        ("spec|budgetingMethod", "Often", "spec.budgetingMethod is 'Often'; allowed: Occurrences"),
        (
            "spec|indicator|metadata|name",
            "canary_exakt",
            "spec.indicator.metadata.name is 'canary_exakt'; allowed: ok_",
        ),
        ("spec|indicator|metadata|name", "leak_count", "is 'ratioMetric'; allowed: thresholdMetric, for leak_count"),
        ("spec|objectives", [], "spec.objectives is .*; allowed: a list of exactly one"),
        ("spec|objectives|0|target", 1.0, r"spec.objectives\[0\].target is 1.0; allowed: a number in \[0, 1\)"),
        ("spec|objectives|0|target", "90%", "target is '90%'"),
        ("spec|objectives|0|target", True, "target is True"),
        ("spec|objectives|0|target", math.nan, "target is nan"),
        (INDICATOR, {}, "exactly one of ratioMetric, thresholdMetric"),
        (INDICATOR, {"thresholdMetric": {}}, r"spec.objectives\[0\].op is None; allowed: gte, gt, lte, lt"),
        (NOTES + "window-seconds", "soon", "chaos-mm.io/window-seconds is 'soon'; allowed: a number in quotes"),
        (NOTES + "window-seconds", 30, "is 30; allowed: a number in quotes"),
        (NOTES + "min-samples", "0", "is '0'; allowed: a number in quotes, at least \"1\""),
        (NOTES + "kind", "smell", "kind is 'smell'; allowed: \"image\""),
        (NOTES + "guard", "maybe", 'guard is \'maybe\'; allowed: "true", "false"'),
        (NOTES + "windw", "3", "annotations is 'chaos-mm.io/windw'; allowed: chaos-mm.io/window-seconds"),
    ],
)
def test_a_bad_file_is_named_with_key_value_and_what_is_allowed(path: str, value: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        objectives.read(changed(path, value), "file.yaml")
    assert str(caught.value).startswith("file.yaml: ")


@pytest.mark.parametrize("text", ["", "[]", "a: [", "3", "!!python/object:os.system x"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="file.yaml: "):
        objectives.read(text, "file.yaml")


HUGE = "0x" + "f" * 6000  # YAML reads it as an integer that Python refuses to write in decimal


@pytest.mark.parametrize(
    "text",
    [
        "x: 2026-13-45",
        "[" * 5000,
        f"apiVersion: {HUGE}",
        yaml.safe_dump(GOOD).replace("target: 0.9", f"target: {HUGE}"),
        yaml.safe_dump(GOOD).replace("target: 0.9", "target: " + "9" * 400),
    ],
    ids=["date", "deep", "huge word", "huge number", "beyond a float"],
)
def test_hostile_text_is_refused_by_name(text: str) -> None:
    assert text != yaml.safe_dump(GOOD)
    with pytest.raises(BadRequest, match="file.yaml: "):
        objectives.read(text, "file.yaml")


def test_numbers_beyond_reason_are_refused() -> None:
    for key in ("min-samples", "window-seconds"):
        with pytest.raises(BadRequest, match="allowed: a number in quotes"):
            objectives.read(changed(NOTES + key, "9" * 400))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(BadRequest, match=r"a\.yaml: cannot be read"):
        objectives.load(tmp_path)
    (tmp_path / "a.yaml").rmdir()
    (tmp_path / "b.yaml").write_bytes(b"apiVersion: \xff\xfe")
    with pytest.raises(BadRequest, match=r"b\.yaml: cannot be read as UTF-8"):
        objectives.load(tmp_path)


def test_a_filter_against_the_slis_own_population_is_refused() -> None:
    document = yaml.safe_load(changed("spec|indicator|metadata|name", "alignment_ok"))
    document["metadata"]["annotations"] = {"chaos-mm.io/kind": "image"}
    with pytest.raises(BadRequest, match="alignment_ok is about agreement, not image"):
        objectives.read(yaml.safe_dump(document), "file.yaml")
    document["metadata"]["annotations"] = {"chaos-mm.io/kind": "agreement"}
    assert objectives.read(yaml.safe_dump(document), "file.yaml").filters == {"kind": "agreement"}


def test_a_latency_needs_an_upper_bound() -> None:
    document = yaml.safe_load(changed(INDICATOR, {"thresholdMetric": {}}))
    document["spec"]["indicator"]["metadata"]["name"] = "ttft"
    document["spec"]["objectives"] = [{"op": "gte", "value": 2, "target": 0.9}]
    with pytest.raises(BadRequest, match="op is 'gte'; allowed: lte, lt, for ttft"):
        objectives.read(yaml.safe_dump(document))


def test_where_objectives_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(GOOD))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHAOS_MM_OBJECTIVES", raising=False)
    assert objectives.find() == objectives.packaged_dir()
    monkeypatch.setenv("CHAOS_MM_OBJECTIVES", str(tmp_path))
    assert set(objectives.load()) == {"speech"}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(BadRequest, match="two.yaml: metadata.name 'speech' is taken by .*one.yaml"):
        objectives.load(tmp_path)
    with pytest.raises(BadRequest, match="no such directory of objectives"):
        objectives.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRequest, match="no objectives there"):
        objectives.load(tmp_path / "empty")


def answer(value: Any = 1.0, samples: Any = 100, measured: Any = True, **more: Any) -> dict[str, Any]:
    return {"measured": measured, "value": value, "unit": "ratio", "samples": samples, "reason": "", **more}


@pytest.mark.parametrize(
    ("comparison", "value", "met"),
    [("gte", 0.99, True), ("gte", 0.98, False), ("gt", 0.99, False), ("lte", 0.99, True), ("lt", 0.99, False)],
)
def test_comparisons(comparison: str, value: float, met: bool) -> None:
    assert Objective("x", "ok_ratio", comparison=comparison, threshold=0.99).judge(answer(value)).met is met


@pytest.mark.parametrize(
    ("given_answer", "reason"),
    [
        (None, "availability: no data: the answer is NoneType, not an object"),
        (1.0, "the answer is float"),
        ({}, "no data: nothing was measured"),
        (answer(measured=1), "nothing was measured"),
        (answer(0.0, 0, False, reason="p95 needs 200 samples"), "no data: p95 needs 200 samples"),
        (answer(math.nan), "the value is nan, not a finite number"),
        (answer(math.inf), "the value is inf"),
        (answer("1.0"), "the value is '1.0'"),
        (answer(True), "the value is True"),
        (answer(10**400), "not a finite number"),
        (answer(None), "the value is None"),
        (answer(samples=9), "no data: 9 samples, at least 10 needed"),
        (answer(samples=None), "samples is None"),
        (answer(samples=10.5), "samples is 10.5"),
    ],
)
def test_what_cannot_be_judged_is_not_met(given_answer: Any, reason: str) -> None:
    judgement = SHARE.judge(given_answer)
    assert not judgement.met
    assert reason in judgement.reason


def test_a_judgement_reads_as_a_sentence() -> None:
    assert SHARE.judge(answer(0.95)).reason == "availability: ok_ratio is 0.95, not at least 0.99"
    assert SHARE.judge(answer(1.0)).reason == "availability: ok_ratio is 1, at least 0.99"


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.none(), max_size=2)


@given(st.dictionaries(st.sampled_from(["measured", "value", "samples", "reason", "unit", "status"]), VALUES) | VALUES)
def test_judging_never_raises_and_meets_only_good_numbers(found: Any) -> None:
    if SHARE.judge(found).met:
        assert found["measured"] is True
        assert math.isfinite(found["value"])
        assert found["value"] >= 0.99
        assert found["samples"] >= 10
