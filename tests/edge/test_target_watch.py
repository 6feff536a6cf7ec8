"""A service that answered at the start and refuses at the end did not come back, whoever sits at its address now."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chaos_mm.controls.ending import TargetWatch
from chaos_mm.controls.run import Run


@pytest.fixture
def service() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.status)  # type: ignore[attr-defined]
            self.end_headers()

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
    ("before", "after", "gone"),
    [
        (200, 200, False),
        (200, 429, False),
        (200, 404, True),
        (200, 503, True),
        (401, 401, False),
        (401, 200, False),
        (404, 500, True),
        (503, 503, False),
    ],
)
def test_what_counts_as_gone(service: HTTPServer, before: int, after: int, gone: bool) -> None:
    watch = TargetWatch(Run("t", configuration={"target_url": f"http://127.0.0.1:{service.server_address[1]}"}))
    service.status = before  # type: ignore[attr-defined]
    watch.begin()
    service.status = after  # type: ignore[attr-defined]
    assert watch.gone() is gone
