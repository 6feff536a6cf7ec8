"""A service that gives every GET one answer, which a test may change."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Canned(HTTPServer):
    """``status`` and ``text`` are what it answers; ``url`` is where."""

    def __init__(self) -> None:
        self.status, self.text = 200, b""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def canned() -> Iterator[Canned]:
    """Serve until the block ends."""
    server = Canned()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
