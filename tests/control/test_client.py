"""Client and server over real HTTP: the same errors on either side, release that always succeeds."""

import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos_mm.control.api import ControlApi
from chaos_mm.control.client import ControlClient, Points
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.errors import (
    BadRequest,
    InvalidParams,
    OwnedByAnother,
    PointUnreachable,
    Stopped,
    UnknownFault,
    UnknownLease,
)
from chaos_mm.core.fault import Point
from chaos_mm.core.lease_book import LeaseBook
from tests.control.conftest import TOKEN
from tests.core.samples import CATALOGUE, body


def test_a_lease_s_life(client: ControlClient):
    assert client.health()["armed"] is False
    made = client.put_lease("a", body())
    assert (made["state"], made["owner"]) == ("live", "run-a")
    assert client.health()["armed"] is True
    assert client.keepalive("a", "run-a")["last_keepalive_at"] >= made["last_keepalive_at"]
    assert [lease["name"] for lease in client.leases()] == ["a"]
    gone = client.release("a", "run-a")
    assert (gone["gone"], gone["lease"]["ended_by"]) == (False, "release")
    assert client.lease("a")["state"] == "ended"
    assert client.release("never", "run-a") == {"gone": True, "lease": None, "instance": made["instance"]}


def test_errors_come_back_as_the_same_class_with_the_point_s_words(client: ControlClient):
    client.put_lease("a", body(reason="drill"))
    with pytest.raises(OwnedByAnother, match=r"held by run-a \(drill\)"):
        client.put_lease("b", body("run-b"))
    with pytest.raises(InvalidParams, match=r"count='10%' .*\[0, 9\]"):
        client.put_lease("a", body(params={"count": "10%"}))
    with pytest.raises(UnknownFault, match="there are"):
        client.put_lease("a", body(fault="x"))
    with pytest.raises(UnknownLease):
        client.lease("zz")


def test_stop_latches_until_cleared(client: ControlClient):
    client.put_lease("a", body())
    assert client.stop() == {"released": 1, "stopped": True}
    with pytest.raises(Stopped):
        client.put_lease("a", body())
    client.clear_stop()
    client.put_lease("a", body())


def test_own_routes_streams_metrics_and_declarations(client: ControlClient):
    client.put_lease("a", body())
    assert client.get("/echo/hi", run="r 1&x") == {"word": "hi", "query": {"run": "r 1&x"}}
    assert client.text("/rows") == '{"n":0}\n{"n":1}\n{"n":2}\n'
    assert "chaos_mm_leases_live 1" in client.text("/metrics")
    assert {fault["name"] for fault in client.faults()} == set(CATALOGUE)


def test_nobody_there_is_said_in_words():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(PointUnreachable, match=f"no point answers at {url}"):
            ControlClient(url, TOKEN).health()


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"{}", b"[]"])
def test_another_server_is_not_taken_for_a_point(answer: bytes):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PointUnreachable, match="point"):
            ControlClient(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN).health()
        thread.join()


def test_a_silent_server_ends_at_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PointUnreachable, match="timed out"):
            ControlClient(url, TOKEN, timeout=0.2).health()


@pytest.mark.parametrize("url", ["127.0.0.1:8602", "ftp://x", "http://", ""])
def test_what_is_no_control_url_is_refused(url: str):
    with pytest.raises(BadRequest, match="control URL"):
        ControlClient(url, TOKEN)


def test_no_proxy_of_the_environment_is_used(client: ControlClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert client.health()["ok"] is True


def test_a_rotated_token_is_read_again(server: ControlServer, tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o600)
    client = ControlClient(server.url, token_file=path)
    with pytest.raises(Exception, match="has another token"):
        client.leases()
    path.write_text(TOKEN)
    assert client.leases() == []


@pytest.fixture
def second() -> ControlServer:
    served = serve_control(
        ControlApi(LeaseBook(CATALOGUE, point=Point.PROXY), TOKEN, version="1"), "http://127.0.0.1:0"
    )
    yield served
    served.close()


def test_several_points_inject_all_or_nothing(server: ControlServer, second: ControlServer):
    other = ControlClient(second.url, TOKEN)
    other.put_lease("x", body("run-b"))
    points = Points(f"{server.url},{second.url}", TOKEN)
    with pytest.raises(OwnedByAnother, match="run-b"):
        points.put_lease("a", body())
    assert ControlClient(server.url, TOKEN).lease("a")["ended_by"] == "release"
    other.release("x", "run-b")
    assert len(points.put_lease("a", body())) == 2


def test_several_points_are_asked_at_once(
    server: ControlServer, second: ControlServer, monkeypatch: pytest.MonkeyPatch
):
    """One that is long over its answer must not take the next one's time."""
    both, put = threading.Barrier(2), ControlClient.put_lease

    def together(client: ControlClient, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        both.wait(10.0)
        return put(client, name, given)

    monkeypatch.setattr(ControlClient, "put_lease", together)
    answers = Points([server.url, second.url], TOKEN).put_lease("a", body())
    assert [answer["name"] for answer in answers] == ["a", "a"]


def test_whatever_goes_wrong_at_one_point_the_others_are_released(
    server: ControlServer, second: ControlServer, monkeypatch: pytest.MonkeyPatch
):
    put = ControlClient.put_lease

    def breaks(client: ControlClient, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return put(client, name, given) if client.url == second.url else {}["answer"]

    monkeypatch.setattr(ControlClient, "put_lease", breaks)
    with pytest.raises(KeyError):
        Points([server.url, second.url], TOKEN).put_lease("a", body())
    assert ControlClient(second.url, TOKEN).lease("a")["ended_by"] == "release"


@pytest.mark.parametrize("rest", ["[::1", "127.0.0.1:99999", "127.0.0.1:x"])
def test_a_url_that_cannot_be_read_is_named_without_its_credentials(rest: str) -> None:
    with pytest.raises(BadRequest, match="is no control URL") as found:
        ControlClient(f"http://user:hidden@{rest}", "t")
    assert rest in str(found.value) and "hidden" not in str(found.value)
