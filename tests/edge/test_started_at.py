"""Whether another process serves than before is read from its start time, in Prometheus' usual words."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chaos_mm.controls.target import started_at
from tests.ports import free_ports


@pytest.fixture
def metrics() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.text)  # type: ignore[attr-defined]

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (b"a 1\nprocess_start_time_seconds 1.78e+09\nb 2\n", 1.78e9),
        (b'process_start_time_seconds{model="x"} 1700000000.25\n', 1700000000.25),
        (b"# HELP process_start_time_seconds 5\n", None),
        (b"process_start_time_seconds soon\n", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_the_start_time_is_read_or_unknown(metrics: HTTPServer, text: bytes, at: float | None) -> None:
    metrics.text = text  # type: ignore[attr-defined]
    assert started_at(f"http://127.0.0.1:{metrics.server_address[1]}", 2.0) == at


def test_a_silent_address_is_unknown() -> None:
    assert started_at(f"http://127.0.0.1:{free_ports(1)}", 0.5) is None
