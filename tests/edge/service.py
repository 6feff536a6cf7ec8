"""A service under test whose life the test holds in its hands: what /health and /metrics say, whether it generates."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """OpenAI-compatible as far as the liveness probes ask. ``going``: while it is clear, completions hang.

    ``health``: the status of /health. ``metrics``: its text, or one text after another, the last one for good.
    ``asked``: the bodies of the completions that came.
    """

    def __init__(self) -> None:
        self.going, self.health, self.status = threading.Event(), 200, 200
        self.going.set()
        self.metrics: str | list[str] = ""
        self.asked: list[dict[str, Any]] = []
        service = self

        class Handler(_Handler):
            one = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """End it; what hangs is let go."""
        self.going.set()
        self._server.shutdown()
        self._server.server_close()

    def shown(self) -> str:
        """What /metrics shows this time."""
        if isinstance(self.metrics, str):
            return self.metrics
        return self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    one: Service

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(self.one.health, b"")
        else:
            self._send(200, self.one.shown().encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.one.asked.append(asked)
        self.one.going.wait(30)
        message = {"index": 0, "message": {"role": "assistant", "content": "4072"}, "finish_reason": "stop"}
        self._send(self.one.status, json.dumps({"choices": [message]}).encode())

    def _send(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            return  # who asked has given up, as it does when an answer hangs

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
