"""What is there, what is missing, what to type."""

import json
from pathlib import Path

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.messages import Response, Route
from chaos_mm.control.point import PointSettings, start_control
from chaos_mm.control.token import read_token
from chaos_mm.core.fault import Point, Target
from tests.cli.conftest import Cli
from tests.core.samples import CATALOGUE, body


def lines(output: str, what: str) -> list[str]:
    """The finding about ``what`` and the line of advice under it."""
    all_lines = output.splitlines()
    at = next(i for i, line in enumerate(all_lines) if what in line)
    return all_lines[at : at + 2]


@pytest.fixture(autouse=True)
def no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_MM_TARGET_URL", "http://127.0.0.1:9")


def test_what_is_missing_comes_with_what_to_type(cli: Cli, nowhere: str) -> None:
    shown = cli("doctor")
    assert shown.exit_code == 1
    for what in (f"proxy {nowhere}", "target http://127.0.0.1:9"):
        finding, advice = lines(shown.output, what)
        assert finding.startswith("MISSING") and 'eval "$(chaos-mm demo up)"' in advice


def test_a_point_that_answers_is_good(cli: Cli, client: ControlClient) -> None:
    assert lines(cli("doctor").output, client.url)[0].startswith("ok")
    client.put_lease("a", body())
    assert "chaos-mm status" in lines(cli("doctor").output, client.url)[1]
    client.stop()
    assert lines(cli("doctor").output, client.url)[0].startswith("MISSING")
    assert "chaos-mm stop --clear" in lines(cli("doctor").output, client.url)[1]


def test_an_unsafe_token_is_missing_and_never_shown(cli: Cli, client: ControlClient, state: Path) -> None:
    token = read_token()
    assert lines(cli("doctor").output, "token")[0].startswith("ok")
    (state / "token").chmod(0o644)
    shown = cli("doctor").output
    assert lines(shown, "token")[0].startswith("MISSING") and "open to others" in shown
    assert token not in shown


RELEASE = {"func": "release", "arguments": {"lease": "image_noise"}}


def experiment(path: Path, **arguments: object) -> Path:
    arguments = {"ttl_seconds": 60, **arguments}
    provider = {"type": "python", "module": "chaos_mm.actions", "func": "inject_image_noise", "arguments": arguments}
    content = {
        "title": "t",
        "description": "d",
        "controls": [{"name": "verdict", "provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}],
        "method": [{"type": "action", "name": "inject", "provider": provider}],
        "rollbacks": [{"type": "action", "name": "release", "provider": {**provider, **RELEASE}}],
        "runtime": {"rollbacks": {"strategy": "always"}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_bad_value_in_a_file_is_named(cli: Cli, tmp_path: Path, nowhere: str) -> None:
    shown = cli("doctor", str(experiment(tmp_path / "bad.json", sigma=7)))
    assert shown.exit_code == 1 and "sigma=7" in shown.output and "[0, 1]" in shown.output


def test_a_file_that_nothing_speaks_against(cli: Cli, tmp_path: Path, client: ControlClient) -> None:
    path = experiment(tmp_path / "good.json", sigma=0.1)
    assert f"chaos run {path}" in lines(cli("doctor", str(path)).output, "nothing speaks against it")[1]


def test_a_broken_rule_points_to_lint(cli: Cli, tmp_path: Path, client: ControlClient) -> None:
    path = experiment(tmp_path / "rules.json", sigma=0.1)
    finding, advice = lines(cli("doctor", str(path)).output, "breaks hypothesis-strategy, ")
    assert finding.startswith("note") and f"chaos-mm lint {path}" in advice


def test_a_load_that_asks_for_another_model_is_named(
    cli: Cli, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = start_control(
        PointSettings("http://127.0.0.1:0"),
        Point.LOAD,
        CATALOGUE,
        frozenset({Target.TRAFFIC}),
        routes=[Route("GET", "/status", lambda _: Response.json({"sending": True, "model": "theirs"}))],
    )
    monkeypatch.setenv("CHAOS_MM_LOAD_CONTROL_URL", load.server.url)
    try:
        shown = cli("doctor")
    finally:
        load.close()
    assert shown.exit_code == 1
    finding, advice = lines(shown.output, "asks for the model theirs, not chaos-mm-tiny")
    assert finding.startswith("MISSING") and "--model chaos-mm-tiny" in advice


def test_a_file_that_is_no_experiment(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}", encoding="utf-8")
    shown = cli("doctor", str(path))
    assert shown.exit_code == 1 and f"chaos-mm lint {path}" in shown.output


def test_a_variable_that_is_no_number_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = experiment(tmp_path / "typed.json", sigma=0.1)
    content = json.loads(path.read_text(encoding="utf-8"))
    given = {"type": "env", "key": "CHAOS_MM_FAULT_SECONDS", "default": 1, "env_var_type": "float"}
    path.write_text(json.dumps({**content, "configuration": {"fault_seconds": given}}), encoding="utf-8")
    monkeypatch.setenv("CHAOS_MM_FAULT_SECONDS", "abc")
    shown = cli("doctor", str(path))
    assert shown.exit_code == 1 and "'abc'" in shown.output and f"chaos-mm lint {path}" in shown.output


def test_a_point_with_another_token_is_answered_with_the_token(
    cli: Cli, client: ControlClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_token()
    other = tmp_path / "other"
    other.write_text("f" * 64, encoding="utf-8")
    other.chmod(0o600)
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(other))
    finding, advice = lines(cli("doctor").output, f"proxy {client.url}")
    assert finding.startswith("MISSING") and "another token" in finding
    assert "export CHAOS_MM_TOKEN_FILE=FILE" in advice


def test_a_point_that_another_run_holds_is_waited_for(cli: Cli, tmp_path: Path, client: ControlClient) -> None:
    client.put_lease("a", body())
    path = experiment(tmp_path / "good.json", sigma=0.1)
    assert "wait for that run to end; chaos-mm status" in lines(cli("doctor", str(path)).output, " is held by ")[1]


def test_an_unknown_objective_is_no_matter_of_the_demo(cli: Cli, tmp_path: Path, client: ControlClient) -> None:
    path = experiment(tmp_path / "typo.json", sigma=0.1)
    content = json.loads(path.read_text(encoding="utf-8"))
    provider = {"type": "python", "module": "chaos_mm.probes", "func": "sli"}
    probe = {"type": "probe", "name": "p", "provider": {**provider, "arguments": {"objective": "picture-answer"}}}
    path.write_text(json.dumps({**content, "method": [*content["method"], probe]}), encoding="utf-8")
    advice = lines(cli("doctor", str(path)).output, "no objective 'picture-answer'")[1]
    assert f"chaos-mm lint {path}" in advice
