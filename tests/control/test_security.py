"""Attacks on the control API: by web pages, by strangers on the machine, by size, by half a request."""

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chaos_mm.control.api import MAX_BODY_BYTES, ControlApi
from chaos_mm.control.client import ControlClient
from chaos_mm.control.connections import MAX_CONNECTIONS, REQUEST_SECONDS, Connections
from chaos_mm.control.server import ControlServer, serve_control
from chaos_mm.core.errors import BadRequest, ChaosMMError, Forbidden, Unauthorized
from chaos_mm.core.lease_book import LeaseBook
from tests.control.conftest import TOKEN
from tests.core.samples import body

AUTH = {"Authorization": f"Bearer {TOKEN}"}


def call(server: ControlServer, method: str, path: str, headers: dict[str, str], data: bytes = b"") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, data, headers)
    response = connection.getresponse()
    answer = response.read().decode()
    connection.close()
    return response.status, answer


def raw(server: ControlServer, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(data)
        found = b""
        while chunk := connection.recv(65536):
            found += chunk
        return found


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/leases"), ("PUT", "/leases/a"), ("DELETE", "/leases/a"), ("POST", "/stop"), ("GET", "/faults")],
)
def test_nothing_without_the_token(
    server: ControlServer, book: LeaseBook, method: str, path: str, headers: dict[str, str]
):
    status, answer = call(server, method, path, headers, json.dumps(body()).encode())
    assert status == 401
    assert TOKEN not in answer
    assert not book.live
    assert not book.stopped


def test_open_answers_hold_numbers_and_names_only(server: ControlServer, client: ControlClient):
    client.put_lease("secret-name", body("secret-owner", reason="secret-reason"))
    for path in ("/health", "/metrics"):
        status, answer = call(server, "GET", path, {})
        assert status == 200
        assert "secret" not in answer
    assert set(json.loads(call(server, "GET", "/health", {})[1])) == {
        "ok", "point", "armed", "stopped", "version", "catalogue", "instance",
    }  # fmt: skip


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8602"])
@pytest.mark.parametrize("path", ["/health", "/leases"])
def test_a_web_page_is_refused_even_with_the_token(server: ControlServer, origin: str, path: str):
    assert call(server, "GET", path, {**AUTH, "Origin": origin})[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8602", "127.0.0.1.evil.example", "", "localhost.evil", "a b"]
)
def test_a_rebound_name_is_refused(server: ControlServer, host: str):
    status, answer = call(server, "GET", "/health", {"Host": host})
    assert status == 403
    assert "--allow-host" in answer


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "[::1]:8602", "10.0.0.1", "chaos.internal:80", "LOCALHOST:2"]
)
def test_literals_localhost_and_allowed_names_are_answered(server: ControlServer, host: str):
    assert call(server, "GET", "/health", {"Host": host})[0] == 200


def test_bodies_above_the_limit_are_refused_unread(server: ControlServer):
    head = f"PUT /leases/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    answer = raw(server, f"{head}Content-Length: {MAX_BODY_BYTES + 1}\r\n\r\n".encode())
    assert b" 413 " in answer.splitlines()[0]
    answer = raw(server, f"{head}Content-Length: {10**30}\r\n\r\n".encode())
    assert b" 413 " in answer.splitlines()[0]


@pytest.mark.parametrize(
    "extra",
    [
        "Content-Length: -5", "Content-Length: 1e3", "Content-Length: ٣", "Transfer-Encoding: chunked",
        "Content-Length: 2\r\nContent-Length: 3", "Host: localhost\r\nHost: evil.example", "Authorization: Bearer x",
    ],
)  # fmt: skip
def test_ambiguous_heads_are_refused(server: ControlServer, book: LeaseBook, extra: str):
    head = f"PUT /leases/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{extra}\r\n\r\n{{}}"
    assert b" 400 " in raw(server, head.encode()).splitlines()[0]
    assert not book.live


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"not json", "strict JSON"),
        (b"[1]", "JSON object"),
        (b'{"owner": "a", "owner": "b"}', "twice"),
        (b'{"ttl_seconds": NaN}', "NaN"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, "nested"),
        (b"[" * 60000, "strict JSON"),
        (b"\xff\xfe", "strict JSON"),
        (b'{"params": [1], "owner": "a", "fault": "text_append"}', "params must be a JSON object"),
        (b'{"fault": 5}', "fault must be"),
    ],
)
def test_malformed_bodies_are_refused_in_words(server: ControlServer, book: LeaseBook, data: bytes, word: str):
    status, answer = call(server, "PUT", "/leases/a", AUTH, data)
    assert 400 <= status < 500
    assert word in answer
    assert not book.live


@pytest.mark.parametrize("path", ["/leases/..%2f..%2fetc", "/leases/a%00b", "/leases/%2e%2e", "/leases/a%0d%0ab"])
def test_names_cannot_carry_paths_or_control_characters(server: ControlServer, book: LeaseBook, path: str):
    assert call(server, "PUT", path, AUTH, json.dumps(body()).encode())[0] == 422
    assert not book.live


def test_unknown_paths_and_methods_are_said(server: ControlServer):
    assert call(server, "GET", "/nothing", AUTH)[0] == 404
    status, answer = call(server, "PATCH", "/leases/a", AUTH)
    assert status == 400
    assert "PUT" in answer


def test_a_flood_of_silent_connections_does_not_keep_anyone_from_releasing(
    server: ControlServer, client: ControlClient
):
    client.put_lease("a", body())
    flood = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * MAX_CONNECTIONS)]
    try:
        for connection in flood[-MAX_CONNECTIONS:]:
            connection.sendall(b"GET /health HT")
        began = time.monotonic()
        assert client.release("a", "run-a")["gone"] is False
        assert time.monotonic() - began < 3
    finally:
        for connection in flood:
            connection.close()


def test_the_oldest_without_the_token_makes_room_and_the_late_are_closed():
    now = [0.0]
    standing = Connections(lambda: now[0])
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 2)]
    try:
        ours = [ours for ours, _ in pairs]
        for n, connection in enumerate(ours[:-2]):
            now[0] = n / 100
            standing.admit(connection)
        standing.answering(ours[0], trusted=True)
        standing.answered(ours[0])
        standing.admit(ours[-2])
        assert [n for n, (_, theirs) in enumerate(pairs[:-1]) if _is_closed(theirs)] == [1]
        now[0] += REQUEST_SECONDS + 0.01
        standing.answering(ours[5], trusted=False)
        standing.admit(ours[-1])
        standing.reap()
        assert not _is_closed(pairs[5][1])
        assert not _is_closed(pairs[-1][1])
        assert _is_closed(pairs[6][1])
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def _is_closed(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_request_that_drips_is_cut_off(server: ControlServer):
    with socket.create_connection(("127.0.0.1", server.port), timeout=REQUEST_SECONDS + 5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        while not server._server.connections._open:
            time.sleep(0.01)
        server._server.connections._open = {  # as if it had been dripping for long
            sock: type(standing)(standing.since - REQUEST_SECONDS)
            for sock, standing in server._server.connections._open.items()
        }
        assert connection.recv(100) == b""


def test_the_token_is_not_handed_to_a_stray_server():
    """Another program on a point's usual port answers politely; it must not learn the token."""
    seen: list[bytes] = []
    answer = b'{"ok": true, "catalogue": "x", "proof": "00"}'
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = ControlClient(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)
        with pytest.raises(Unauthorized, match="another token"):
            client.leases()
    assert seen
    assert TOKEN.encode() not in b"".join(seen)


def test_off_loopback_needs_tls_or_the_literal_word(api: ControlApi):
    for host in ("0.0.0.0", "192.0.2.1", "chaos.internal"):
        with pytest.raises(Forbidden, match="--insecure-plaintext"):
            serve_control(api, f"http://{host}:0")
    with pytest.raises(BadRequest, match="--tls-cert"):
        serve_control(api, "https://127.0.0.1:0")


def test_tls_is_spoken_and_checked(api: ControlApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    served = serve_control(api, "https://127.0.0.1:0", tls_cert=str(cert), tls_key=str(key))
    try:
        monkeypatch.setenv("CHAOS_MM_CA_FILE", str(cert))
        assert ControlClient(served.url, TOKEN).leases() == []
        monkeypatch.delenv("CHAOS_MM_CA_FILE")
        with pytest.raises(ChaosMMError, match="certificate"):
            ControlClient(served.url, TOKEN).leases()
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            call(served, "GET", "/health", {})
    finally:
        served.close()


def test_a_taken_port_is_said_in_words(api: ControlApi, server: ControlServer):
    with pytest.raises(
        ChaosMMError, match=f"control port 127.0.0.1:{server.port} cannot be used: Address already in use"
    ):
        serve_control(api, server.url)


def test_a_socket_file_is_private_and_outlives_a_killed_point(api: ControlApi, tmp_path: Path):
    path = tmp_path / "control.sock"
    served = serve_control(api, f"unix://{path}")
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert ControlClient(served.url, TOKEN).health()["ok"] is True
        with pytest.raises(ChaosMMError, match="cannot be used"):
            serve_control(api, f"unix://{path}")
    finally:
        served.close()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # as after kill -9: a file nobody listens at
    again = serve_control(api, f"unix://{path}")
    again.close()


def test_a_file_in_place_of_the_socket_is_not_removed(api: ControlApi, tmp_path: Path):
    path = tmp_path / "control.sock"
    path.write_text("precious")
    with pytest.raises(ChaosMMError, match="cannot be used"):
        serve_control(api, f"unix://{path}")
    assert path.read_text() == "precious"


def test_the_server_says_nothing_of_itself(server: ControlServer):
    assert urlsplit(server.url).port == server.port
    head = raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").split(b"\r\n\r\n")[0]
    assert b"Python" not in head
    assert b"no-store" in head
