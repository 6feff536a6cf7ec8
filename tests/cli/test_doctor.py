"""What is there, what is missing, what to type."""

import json
from pathlib import Path

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.control.token import read_token
from tests.cli.conftest import Cli
from tests.core.samples import body


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


def experiment(path: Path, **arguments: object) -> Path:
    provider = {"type": "python", "module": "chaos_mm.actions", "func": "inject_image_noise", "arguments": arguments}
    content = {
        "title": "t",
        "description": "d",
        "controls": [{"name": "verdict", "provider": {"type": "python", "module": "chaos_mm.controls.verdict"}}],
        "method": [{"type": "action", "name": "inject", "provider": provider}],
        "rollbacks": [],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_bad_value_in_a_file_is_named(cli: Cli, tmp_path: Path, nowhere: str) -> None:
    shown = cli("doctor", str(experiment(tmp_path / "bad.json", sigma=7)))
    assert shown.exit_code == 1 and "sigma=7" in shown.output and "[0, 1]" in shown.output


def test_a_file_that_nothing_speaks_against(cli: Cli, tmp_path: Path, client: ControlClient) -> None:
    path = experiment(tmp_path / "good.json", sigma=0.1)
    assert f"chaos run {path}" in lines(cli("doctor", str(path)).output, "nothing speaks against it")[1]


def test_a_file_that_is_no_experiment(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}", encoding="utf-8")
    shown = cli("doctor", str(path))
    assert shown.exit_code == 1 and f"chaos validate {path}" in shown.output
