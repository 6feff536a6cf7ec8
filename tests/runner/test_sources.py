"""What is known of an experiment before it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.runner.sources import BadSource, global_controls, has_ours, read

CONTROL = {"name": "verdict", "provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}


def of(module: str) -> dict[str, Any]:
    return {"type": "action", "name": "a", "provider": {"type": "python", "module": module, "func": "f"}}


def written(folder: Path, body: Any, name: str = "x.json") -> str:
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "body",
    [
        {"method": [of("other.actions"), of("chaos_mm.actions")]},
        {"rollbacks": [of("chaos_mm.actions")]},
        {"steady-state-hypothesis": {"probes": [of("chaos_mm.probes")]}},
        {"steady-state-hypothesis": {"probes": [{**of("x"), "tolerance": of("chaos_mm.tolerances")}]}},
        {"configuration": {"x": of("chaos_mm.probes")}},
    ],
)
def test_an_activity_of_ours_is_found_wherever_it_stands(body: dict[str, Any]) -> None:
    assert has_ours(body)


@pytest.mark.parametrize(
    "body",
    [
        {"method": [of("chaos_mmm.actions"), of("mychaos_mm.actions")], "title": "chaos_mm.actions"},
        {"controls": [CONTROL]},
        {"method": [{"provider": "chaos_mm.actions"}, None, 3, {"provider": {"module": 7}}]},
        [],
        None,
    ],
)
def test_a_name_elsewhere_or_a_control_is_no_activity_of_ours(body: Any) -> None:
    assert not has_ours(body)


@pytest.mark.parametrize(
    ("controls", "judged"),
    [
        ([CONTROL], True),
        ([{**CONTROL, "automatic": True}], True),
        ([{**CONTROL, "automatic": False}], False),
        (["verdict"], False),
        ([{"name": "verdict"}], False),
        ("verdict", False),
    ],
)
def test_whether_our_verdict_is_on_it(tmp_path: Path, controls: Any, judged: bool) -> None:
    source = read(written(tmp_path, {"method": [of("chaos_mm.actions")], "controls": controls}))
    assert (source.ours, source.judged) == (True, judged)
    assert bool(source.refusal) is not judged


def test_a_control_that_every_experiment_gets_counts(tmp_path: Path) -> None:
    source = written(tmp_path, {"method": [of("chaos_mm.actions")]})
    settings = written(
        tmp_path, "controls:\n  v: {provider: {type: python, module: chaos_mm.controls.verdict}}\n", "s.yaml"
    )
    extra = written(tmp_path, {"v": {"provider": CONTROL["provider"]}, "junk": 3}, "c.json")
    assert read(source).refusal
    assert read(source, global_controls(settings, ())).judged
    assert read(source, global_controls("/no/such/settings.yaml", [extra])).judged


@pytest.mark.parametrize("junk", ["", "- 1", "controls: 3", "{", "\x00"])
def test_settings_that_cannot_be_read_have_no_controls(tmp_path: Path, junk: str) -> None:
    assert global_controls(written(tmp_path, junk, "s.yaml"), [written(tmp_path, junk, "c.yaml")]) == []


@pytest.mark.parametrize(
    ("arguments", "expect"), [({"expect": "deviated"}, "deviated"), ({"expect": "${x}"}, ""), ({}, ""), (None, "")]
)
def test_what_its_control_expects(tmp_path: Path, arguments: Any, expect: str) -> None:
    control = {"name": "v", "provider": {**CONTROL["provider"], "arguments": arguments}}
    assert read(written(tmp_path, {"controls": [control]})).expect == expect


@pytest.mark.parametrize("name", ["x.yaml", "x.yml"])
def test_yaml_is_read_too(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, "method: [{provider: {type: python, module: chaos_mm.actions}}]", name)).ours


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "{", "cannot be read"),
        ("x.json", "[]", "holds list, not an object"),
        ("x.yaml", "a: [", "cannot be read"),
        ("x.txt", "{}", "ends in .json, .yaml, .yml"),
        ("x.json", "[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_experiment_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(BadSource, match=said):
        read(written(tmp_path, text, name))


def test_a_source_that_is_not_there_or_not_here(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match="no such file"):
        read(str(tmp_path / "x.json"))
    assert read("https://example.org/x.json").experiment is None


def test_a_file_that_names_its_own_parts_again_is_looked_at_once(tmp_path: Path) -> None:
    nested = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    nested += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "a.yaml").write_text("\n".join(["title: t", "itself: &a [*a]", *nested]))
    assert read(str(tmp_path / "a.yaml")).ours is False


@pytest.mark.parametrize(
    ("tags", "fatal"), [(["agent", "fatal"], True), (["fatally"], False), ("fatal", False), (None, False)]
)
def test_a_tag_says_that_it_takes_the_service_down(tmp_path: Path, tags: Any, fatal: bool) -> None:
    assert read(written(tmp_path, {"tags": tags})).fatal is fatal
