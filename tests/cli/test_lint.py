"""``chaos-mm lint``: its three exit codes, its text and its JSON, JSON and YAML files alike."""

import json
from pathlib import Path

import yaml

from tests.cli.conftest import Cli
from tests.house.conftest import ROOT

SHIPPED = [str(path) for path in sorted((ROOT / "experiments").glob("*.json"))]


def test_what_ships_is_clean(cli: Cli) -> None:
    shown = cli("lint", "--strict", *SHIPPED)
    assert shown.exit_code == 0, shown.output
    assert shown.output.count(": clean") == len(SHIPPED)


def test_errors_are_shown_with_what_to_write_instead(cli: Cli, tmp_path: Path) -> None:
    body = json.loads(Path(SHIPPED[0]).read_text())
    body["runtime"]["rollbacks"]["strategy"] = "default"
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(body))
    shown = cli("lint", str(path), SHIPPED[0])
    assert shown.exit_code == 1
    assert "error    rollbacks-strategy: runtime.rollbacks.strategy: the strategy is 'default'" in shown.output
    assert '-> "runtime": {"rollbacks": {"strategy": "always"}}' in shown.output
    assert "2 files: 1 error, 0 warnings" in shown.output


def test_warnings_count_only_when_strict(cli: Cli, tmp_path: Path) -> None:
    body = json.loads(Path(SHIPPED[0]).read_text())
    body["method"][1]["provider"]["timeout"] = 3
    path = tmp_path / "meh.json"
    path.write_text(json.dumps(body))
    assert cli("lint", str(path)).exit_code == 0
    assert cli("lint", "--strict", str(path)).exit_code == 1


def test_json(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text("{")
    shown = cli("lint", "--json", str(path))
    assert shown.exit_code == 1
    found = json.loads(shown.output)
    assert (found["schema"], found["errors"], found["warnings"]) == (1, 1, 0)
    (only,) = found["files"]
    assert only["file"] == str(path)
    assert (only["findings"][0]["rule"], only["findings"][0]["level"]) == ("shape", "error")


def test_wrong_usage_is_2(cli: Cli, tmp_path: Path) -> None:
    assert cli("lint").exit_code == 2
    assert cli("lint", str(tmp_path / "absent.json")).exit_code == 2


def test_a_folder_is_answered_with_what_to_type(cli: Cli, tmp_path: Path) -> None:
    shown = cli("lint", str(tmp_path))
    assert shown.exit_code == 2
    assert f"{tmp_path} is a folder; name the files in it: {tmp_path}/*.json" in shown.output
