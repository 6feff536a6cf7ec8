"""Every lease everywhere, and the switch for all of them, against a real control API."""

import json

import pytest

from chaos_mm.commands.points import known_points
from chaos_mm.control.client import ControlClient
from chaos_mm.control.point import ControlPoint
from chaos_mm.core.errors import Stopped
from tests.cli.conftest import Cli
from tests.core.samples import body


def test_nothing_armed_exits_0(cli: Cli, point: ControlPoint) -> None:
    shown = cli("status")
    assert shown.exit_code == 0 and shown.stdout == "Nothing is armed.\n"


def test_a_live_lease_is_shown_whole_and_exits_1(cli: Cli, client: ControlClient) -> None:
    lease = client.put_lease("a", body(reason="game day"))
    shown = cli("status")
    assert shown.exit_code == 1
    for word in (lease["fault"], lease["owner"], "game day", "0 of 0", client.url):
        assert word in shown.stdout
    told = json.loads(cli("status", "--json").stdout)
    assert [one["name"] for answer in told for one in answer["leases"]] == ["a"]


def test_an_ended_lease_is_not_armed(cli: Cli, client: ControlClient) -> None:
    client.release("a", client.put_lease("a", body())["owner"])
    assert cli("status").exit_code == 0


def test_a_named_point_that_is_silent_is_no_all_clear(cli: Cli, nowhere: str) -> None:
    shown = cli("status")
    assert shown.exit_code == 3
    assert "is not known" in shown.stdout and "Nothing is armed" not in shown.stdout
    assert nowhere in shown.stderr and "named by CHAOS_MM_PROXY_CONTROL_URL" in shown.stderr


def test_stop_releases_and_latches_until_cleared(cli: Cli, client: ControlClient) -> None:
    client.put_lease("a", body())
    shown = cli("stop")
    assert shown.exit_code == 0 and "released 1 lease;" in shown.stdout
    assert client.lease("a")["ended_by"] == "stop"
    with pytest.raises(Stopped):
        client.put_lease("b", body())
    assert "chaos-mm stop --clear" in cli("status").stderr
    assert cli("stop", "--clear").exit_code == 0
    assert client.put_lease("b", body())["state"] == "live"


def test_stop_fails_loudly_when_a_named_point_is_silent(cli: Cli, nowhere: str) -> None:
    shown = cli("stop")
    assert shown.exit_code == 3 and "NOT stopped" in shown.stderr


def test_an_address_is_asked_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_MM_PROXY_CONTROL_URL", "http://127.0.0.1:1, http://127.0.0.2:1/")
    monkeypatch.setenv("CHAOS_MM_LOAD_CONTROL_URL", "http://127.0.0.1:1")
    found = known_points(("http://127.0.0.3:1",), {"proxy_control_url": "http://127.0.0.4:1"}, "file.json")
    assert [(point.url[-5:], point.source) for point in found if point.expected] == [
        ("0.3:1", "--url"),
        ("0.4:1", "file.json"),
        ("0.1:1", "CHAOS_MM_PROXY_CONTROL_URL"),
        ("0.2:1", "CHAOS_MM_PROXY_CONTROL_URL"),
    ]
    assert {point.kind for point in found if not point.expected} == {"agent", "host"}
