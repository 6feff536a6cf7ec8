"""Serves the control API on its own loopback port or private socket, from a thread, with the standard library.

Never on a port that carries data; off loopback only under TLS or by the literal ``insecure_plaintext``.
"""

import ipaddress
import logging
import os
import socket
import socketserver
import ssl
import stat
import threading
from collections.abc import Iterable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chaos_mm.control.api import MAX_BODY_BYTES, ControlApi
from chaos_mm.control.connections import REQUEST_SECONDS, Connections
from chaos_mm.control.messages import Request, Response
from chaos_mm.core.errors import BadRequest, ChaosMMError, Forbidden, TooLarge

logger = logging.getLogger("chaos_mm.control")
_TICK_SECONDS = 0.1


class ControlServer:
    """A running control API; ``close`` ends it."""

    def __init__(self, server: "_Server", url: str) -> None:
        self._server, self.url = server, url
        self._thread = threading.Thread(target=self._run, name="chaos-mm-control", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The TCP port, 0 for a socket file."""
        return urlsplit(self.url).port or 0

    def _run(self) -> None:
        self._server.serve_forever(poll_interval=_TICK_SECONDS)

    def close(self) -> None:
        """Stop serving; every lease of the book ends with the process."""
        self._server.shutdown()
        self._thread.join(5.0)
        self._server.server_close()
        self._server.api.book.close()


def serve_control(
    api: ControlApi,
    url: str,
    *,
    insecure_plaintext: bool = False,
    tls_cert: str = "",
    tls_key: str = "",
) -> ControlServer:
    """Serve at ``http://127.0.0.1:8602``, ``https://…`` or ``unix:///path``; port 0 takes a free one.

    Raises Forbidden for plaintext off loopback, ChaosMMError naming the address when it is taken.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return ControlServer(_unix_server(api, Path(parts.path)), url)
    host, port = parts.hostname or "", parts.port or 0
    _check_address(parts.scheme, host, insecure_plaintext, tls_cert)
    try:
        server = _TcpServer(api, host, port)
    except OSError as error:
        raise ChaosMMError(f"control port {host}:{port} cannot be used: {error.strerror or error}") from None
    if parts.scheme == "https":
        _wrap(server, tls_cert, tls_key)
    shown = f"[{host}]" if ":" in host else host
    return ControlServer(server, f"{parts.scheme}://{shown}:{server.server_address[1]}")


def _check_address(scheme: str, host: str, insecure_plaintext: bool, tls_cert: str) -> None:
    if scheme not in ("http", "https") or not host:
        raise BadRequest("a control URL is http://host:port, https://host:port or unix:///path")
    if scheme == "https" and not tls_cert:
        raise BadRequest("https needs --tls-cert and --tls-key")
    if scheme == "http" and not _is_loopback(host) and not insecure_plaintext:
        raise Forbidden(f"{host} is not loopback: use https with --tls-cert, or say --insecure-plaintext")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _wrap(server: "_TcpServer", cert: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key or None)
    # The handshake happens in the connection's own thread, so a silent client cannot block the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    api: ControlApi
    connections: Connections

    def service_actions(self) -> None:
        # Leases end on time even when nobody asks; the hot path checks the deadline by itself as well.
        self.api.book.expire()
        self.connections.reap()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.admit(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("control connection ended badly", exc_info=True)


class _TcpServer(_Server):
    allow_reuse_address = True

    def __init__(self, api: ControlApi, host: str, port: int) -> None:
        self.api, self.connections = api, Connections()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def __init__(self, api: ControlApi, path: Path) -> None:
        self.api, self.connections = api, Connections()
        self._path, self._bound = path, False
        super().__init__(str(path), _Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        old = os.umask(0o177)  # the socket is 0600 from its first moment
        try:
            super().server_bind()
            self._bound = True
        finally:
            os.umask(old)

    def server_close(self) -> None:
        super().server_close()
        if self._bound:  # never a file that was there before us
            self._path.unlink(missing_ok=True)


def _unix_server(api: ControlApi, path: Path) -> _UnixServer:
    try:
        if path.is_socket() and not path.is_symlink() and not _answers(path):
            path.unlink()  # left by a process that was killed
        return _UnixServer(api, path)
    except OSError as error:
        raise ChaosMMError(f"control socket {path} cannot be used: {error.strerror or error}") from None


def _answers(path: Path) -> bool:
    if path.lstat().st_uid != os.getuid() or not stat.S_ISSOCK(path.lstat().st_mode):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "chaos-mm"
    sys_version = ""
    timeout = REQUEST_SECONDS
    server: _Server

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(REQUEST_SECONDS)
            self.request.do_handshake()
        super().setup()
        self._arrived = self.server.api.book.clock()

    def _serve(self) -> None:
        arrived = self._arrived
        try:
            request = self._read()
        except ChaosMMError as error:
            self.close_connection = True  # the body was not read, so the stream cannot be trusted
            self._send(Response.json({"error": str(error), "kind": error.kind}, error.status))
            return
        connections = self.server.connections
        connections.answering(self.request, self.server.api.trusts(request))
        self._send(self.server.api.handle(replace(request, arrived=arrived)))
        connections.answered(self.request)
        self._arrived = self.server.api.book.clock()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = _serve

    def _read(self) -> Request:
        for name in ("host", "authorization", "content-length", "origin"):
            if len(self.headers.get_all(name, [])) > 1:
                raise BadRequest(f"header {name} stands twice")
        if "transfer-encoding" in self.headers:
            raise BadRequest("a body needs Content-Length here")
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise BadRequest("Content-Length must be a number")
        if len(text) > 9 or int(text) > MAX_BODY_BYTES:
            raise TooLarge(f"the body has {text[:20]} bytes; at most {MAX_BODY_BYTES} are taken")
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, max_num_fields=32))
        return Request(self.command, parts.path, query, headers, self.rfile.read(int(text)))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if isinstance(response.body, bytes):
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._stream(response.body)

    def _stream(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Paths and agents are not logged: a lease's life is, by the book."""
