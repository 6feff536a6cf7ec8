"""A service that can truly be hurt through its text: it answers with the digits it finds in the prompt."""

import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Upstream:
    """OpenAI-compatible as far as the load and ``target_alive`` ask; ``close`` ends it.

    The port stays taken after that, without anybody listening: a server of another test would answer in its place.
    """

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.started = 1e9  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def replace(self) -> None:
        """From now on as if another process served."""
        self._server.started += 1.0  # type: ignore[attr-defined]

    def close(self) -> None:
        address = self._server.server_address
        self._server.shutdown()
        self._server.server_close()
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(address[:2])
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        kept.detach()  # until this process ends


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/metrics":
            told = f"process_start_time_seconds {self.server.started}\n"  # type: ignore[attr-defined]
            self._send(told.encode(), "text/plain")
            return
        self._send(json.dumps({"data": [{"id": "digits"}]}).encode(), "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = "".join(re.findall(r"\d", _prompt(asked))) or "unknown"
        if not asked.get("stream"):
            message = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            self._send(json.dumps({"choices": [message]}).encode(), "application/json")
            return
        events = [_chunk({"content": answer}, None), _chunk({}, "stop"), b"data: [DONE]\n\n"]
        self._send(b"".join(events), "text/event-stream")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _prompt(asked: dict[str, Any]) -> str:
    content = asked["messages"][-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return " ".join(part["text"] for part in parts if part["type"] == "text")


def _chunk(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )
