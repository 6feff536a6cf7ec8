"""One source that must be fetched: what it holds is known when the toolkit has loaded it."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_cli.programs import chaos, foreign, probe, timeless
from tests.edge.chaos import activity, experiment
from tests.edge.conftest import CLOSED

NOBODY = {f"CHAOS_MM_{name}_CONTROL_URL": CLOSED for name in ("PROXY", "AGENT", "HOST", "LOAD")}


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    servers = []

    def start(body: Any) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/x.json"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_foreign_one_runs_as_without_us(tmp_path: Path, serve: Callable[[Any], str]) -> None:
    url = serve(foreign(probe("exit(1)"), method=[]))
    without, with_us, broken = (
        chaos(tmp_path, "--no-version-check", "run", url, NO_PROXY="*", **how)  # type: ignore[arg-type]
        for how in ({"plugin": False}, {}, {"broken": True})
    )
    assert timeless(with_us.text) == timeless(without.text) == timeless(broken.text)
    assert without.status == with_us.status == broken.status == 0


@pytest.mark.parametrize("validated", [(), ("--no-validation",)])
def test_ours_without_our_verdict_is_an_error(
    tmp_path: Path, serve: Callable[[Any], str], validated: tuple[str, ...]
) -> None:
    url = serve(experiment(activity("release_all"), control=False, rollbacks=[]))
    done = chaos(tmp_path, "run", *validated, url, NO_PROXY="*", **NOBODY)
    assert done.status == 4
    assert "left no verdict" in done.text


def test_ours_with_our_verdict_has_its_status(tmp_path: Path, serve: Callable[[Any], str]) -> None:
    done = chaos(
        tmp_path, "run", serve(experiment(activity("inject_image_noise", ttl_seconds=60))), NO_PROXY="*", **NOBODY
    )
    assert done.status == 3, done.text
    assert "left no verdict" not in done.text


def test_in_a_list_each_is_what_it_turns_out_to_be(tmp_path: Path, serve: Callable[[Any], str]) -> None:
    urls = [serve(foreign()), serve(experiment(activity("inject_image_noise", ttl_seconds=60)))]
    urls.append(serve(experiment(activity("release_all"), control=False, rollbacks=[])))
    done = chaos(tmp_path, "run", *urls, NO_PROXY="*", **NOBODY)
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("x  ")][:3] == [
        "exit",
        "not_applied",
        "error",
    ]
    assert done.status == 4
