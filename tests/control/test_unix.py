"""``unix:///path`` wherever a control URL may stand: client, points, names, `chaos-mm status` and `stop`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_mm.control.api import ControlApi
from chaos_mm.control.client import ControlClient, Points
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.controls.names import control_urls, open_client
from chaos_mm.core.errors import BadRequest, PointUnreachable
from tests.control.conftest import TOKEN
from tests.core.samples import body
from tests.processes import CHAOS_MM


@pytest.fixture
def socket_url(api: ControlApi, tmp_path: Path) -> Iterator[str]:
    served: ControlServer = serve_control(api, f"unix://{tmp_path}/control.sock")
    yield served.url
    served.close()


def test_a_lease_s_life_over_a_socket_file(socket_url: str):
    client = ControlClient(socket_url, TOKEN)
    assert client.health()["point"] == "proxy"
    client.put_lease("a", body())
    assert client.keepalive("a", "run-a")["state"] == "live"
    assert client.release("a", "run-a")["lease"]["ended_by"] == "release"


def test_a_list_may_mix_kinds_of_urls(socket_url: str, server: ControlServer):
    assert len(Points(f"{socket_url}, {server.url}", TOKEN).put_lease("a", body())) == 2


def test_names_hand_it_on_whole(socket_url: str, monkeypatch: pytest.MonkeyPatch):
    assert control_urls("agent", {"agent_control_url": f"{socket_url}/"}) == (socket_url,)
    monkeypatch.setenv("CHAOS_MM_HOST_CONTROL_URL", f"{socket_url},http://127.0.0.1:1")
    assert control_urls("host", None) == (socket_url, "http://127.0.0.1:1")
    assert open_client(socket_url, {"token": TOKEN}).leases() == []


@pytest.mark.parametrize(
    "url", ["unix://", "unix:///", "unix://a/b", "unix://localhost/a", "unix:///a?b", "unix:///a#b"]
)
def test_what_would_name_another_file_is_refused(url: str):
    with pytest.raises(
        BadRequest, match="is no control URL; it must be http://host:port, https://host:port or unix:///"
    ):
        ControlClient(url, TOKEN)


def test_a_socket_that_is_not_there_is_a_point_that_does_not_answer(tmp_path: Path):
    with pytest.raises(PointUnreachable, match=f"no point answers at unix://{tmp_path}/none"):
        ControlClient(f"unix://{tmp_path}/none", TOKEN).health()


def test_status_and_stop_take_it(socket_url: str, tmp_path: Path):
    tmp_path.chmod(0o700)
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(TOKEN)
    ControlClient(socket_url, TOKEN).put_lease("a", body())
    env = {"CHAOS_MM_STATE_DIR": str(tmp_path), "CHAOS_MM_TOKEN_FILE": str(tmp_path / "token"), "HOME": str(tmp_path)}
    asked = [CHAOS_MM, "status", "--url", socket_url, "--json"]
    told = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stderr
    (point,) = [one for one in json.loads(told.stdout) if one["url"] == socket_url]
    assert [lease["name"] for lease in point["leases"]] == ["a"]
    done = subprocess.run([CHAOS_MM, "stop"], env={**env, "CHAOS_MM_AGENT_CONTROL_URL": socket_url}, check=False)
    assert done.returncode in (0, 1, 3)
    assert ControlClient(socket_url, TOKEN).leases()[0]["ended_by"] == "stop"
