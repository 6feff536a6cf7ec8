"""Secrets, prompts and pictures planted wherever a run comes by them: none is found in anything that is left behind.

Real chaos, proxy and load against a stub upstream. Looked at: the journal, the toolkit's log at debug and its console,
every file of the run's folder and of the state folder, the points' metrics, leases and samples; each also unpacked
(base64, zlib, gzip) before the markers are looked for as they are, URL-quoted, in hex and in base64.
"""

import base64
import binascii
import io
import json
import os
import re
import secrets
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from chaos_mm.control.client import ControlClient
from chaos_mm.core.canary import canary_key, read_canary_id
from tests.edge.chaos import Chaos, Outcome, activity, experiment
from tests.edge.test_end_to_end import quick_objectives
from tests.edge.upstream import Upstream
from tests.processes import Running, start

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PLANTED = ("password", "token", "api-key", "userinfo", "query", "header", "printed")
USERS = ("prompt", "picture", "bearer", "tenant", "user-query", "user-id", "model")
THEIRS = """
import os

def leak(secrets=None, url=""):
    raise ValueError(f"cannot log in with {secrets['password']} or {os.environ['THEIR_TOKEN']} at {url}")

def tell(secrets=None):
    return {"got": secrets["password"], secrets["password"]: 1, "deep": [{"url": os.environ["THEIR_URL"]}]}

def log(secrets=None):
    import logging
    told = secrets["password"], {"token": os.environ["THEIR_TOKEN"]}
    logging.getLogger("chaostoolkit").debug("using %s and %s", *told)
    return True
"""


def markers(names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"zq{name}{secrets.token_hex(8)}" for name in names}


class Users:
    """People who use the service through the proxy while the run is under way."""

    def __init__(self, url: str, marks: dict[str, str]) -> None:
        self._url, self._marks, self._done, self.answered = url, marks, threading.Event(), 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.picture = _picture(marks["picture"])

    def __enter__(self) -> "Users":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join(30)

    def _send(self) -> None:
        ids = (self._marks["user-id"], f"cmm-r0123456789ab-7-{secrets.token_hex(16)}")
        while not self._done.wait(0.1):
            self._ask(ids[self.answered % 2], self.picture)
            self._ask(ids[0], self.picture[: len(self.picture) // 2])  # one that cannot be decoded

    def _ask(self, request_id: str, picture: bytes) -> None:
        marks = self._marks
        data = "data:image/png;base64," + base64.b64encode(picture).decode()
        content = [
            {"type": "image_url", "image_url": {"url": data}},
            {"type": "text", "text": f"{marks['prompt']} 12 " * 9},
        ]
        body = {"model": marks["model"], "user": marks["prompt"], "messages": [{"role": "user", "content": content}]}
        headers = {
            "Authorization": f"Bearer {marks['bearer']}",
            "X-Tenant": marks["tenant"],
            "X-Request-Id": request_id,
        }
        url = f"{self._url}/v1/chat/completions?user={marks['user-query']}"
        request = urllib.request.Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
        )
        try:
            with DIRECT.open(request, timeout=20) as response:
                self.answered += response.status == 200
        except urllib.error.HTTPError:
            return  # the proxy or the upstream refused the broken picture


def _picture(marker: str) -> bytes:
    import numpy as np
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    text, out = PngInfo(), io.BytesIO()
    text.add_text("comment", marker)
    Image.fromarray(np.random.default_rng(5).integers(0, 255, (48, 64, 3), np.uint8)).save(out, "PNG", pnginfo=text)
    return out.getvalue()


class Place:
    """One run with everything planted, and all that it left."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.planted, self.users = folder, markers(PLANTED), markers(USERS)
        self.upstream = Upstream()
        objectives = {"CHAOS_MM_OBJECTIVES": str(quick_objectives(folder))}
        live = ("--allow-live", "--max-rate", "1.0", "--port", "0", "--control-port", "0")
        self.proxy: Running = start("proxy", "--upstream", self.upstream.url, *live, state=folder)
        options = ("--proxy-url", self.proxy.url, "--control-port", "0", "--mix", "text=1,image=1")
        self.load: Running = start("load", *options, state=folder, env=objectives)
        self.chaos = Chaos(folder, {**self._environment(), **objectives})
        (folder / "theirs.py").write_text(THEIRS)
        self.chaos.environment["PYTHONPATH"] += os.pathsep + str(folder)
        self.chaos.flags += ("--verbose",)
        with Users(self.proxy.url, self.users) as users:
            self.got: Outcome = self.chaos.run(self._experiment())
        self.answered, self.picture = users.answered, users.picture
        (self.reports,) = (path.parent for path in (folder / "reports").glob("*/verdict.json"))
        self.said = self._said()

    def _environment(self) -> dict[str, str]:
        marks, port = self.planted, self.upstream.url.rpartition(":")[2]
        url = f"http://me:{marks['userinfo']}@127.0.0.1:{port}"
        return {
            "CHAOS_MM_PROXY_CONTROL_URL": self.proxy.control_url,
            "CHAOS_MM_LOAD_CONTROL_URL": self.load.control_url,
            "CHAOS_MM_TARGET_URL": url,
            "CHAOS_MM_TARGET_API_KEY": marks["api-key"],
            "CHAOS_MM_LOAD_RATE": "20",
            "THEIR_PASSWORD": marks["password"],
            "THEIR_TOKEN": marks["token"],
            "THEIR_URL": f"{url}/v1/models?api_key={marks['query']}",
            "THEIR_HEADER": f"Bearer {marks['header']}",
            "THEIR_LINE": f"Authorization: Basic {marks['printed']}",
        }

    def _experiment(self) -> dict[str, Any]:
        def theirs(func: str, **more: Any) -> dict[str, Any]:
            provider = {"type": "python", "module": "theirs", "func": func, "secrets": ["theirs"], **more}
            return {"type": "probe", "name": func, "provider": provider}

        web = {"type": "http", "url": "${their_url}", "headers": {"Authorization": "${their_header}"}, "timeout": 3}
        echo = {"type": "process", "path": "echo", "arguments": "${their_line}"}
        method = [
            activity("inject_image_noise", sigma=0.2, selector="live", ttl_seconds=60, keepalive_seconds=10),
            activity("inject_text_token_truncation", share=0.5, selector="live", ttl_seconds=60, keepalive_seconds=10),
            activity("hold", seconds=3),
            theirs("leak", arguments={"url": "${their_url}"}),
            theirs("tell"),
            theirs("log"),
            {"type": "probe", "name": "web", "provider": web},
            {"type": "probe", "name": "echo", "provider": echo},
            activity("target_alive", type="probe", module="probes"),
            activity("no_residue", type="probe", module="probes"),
            activity("release_all"),
        ]
        names = ("their_url", "their_header", "their_line")
        configuration = {name: {"type": "env", "key": name.upper()} for name in names}
        planted = {"theirs": {"password": {"type": "env", "key": "THEIR_PASSWORD"}}}
        more = {"rollbacks": [activity("release_all")], "configuration": configuration, "secrets": planted}
        return experiment(*method, **more)

    def _said(self) -> dict[str, bytes]:
        """What can be asked of the points."""
        token = self.folder / "token"
        said = {}
        for name, url in (("proxy", self.proxy.control_url), ("load", self.load.control_url)):
            client = ControlClient(url, token_file=token)
            said[f"{name} metrics"] = client.text("/metrics").encode()
            said[f"{name} leases"] = json.dumps(client.leases()).encode()
        run = json.loads((self.reports / "verdict.json").read_text())["run"]
        said["samples"] = ControlClient(self.proxy.control_url, token_file=token).text("/samples", owner=run).encode()
        return said

    def close(self) -> None:
        for one in (self.load, self.proxy):
            one.stop()
        self.upstream.close()

    def left(self) -> dict[str, bytes]:
        """Every byte that is left behind, but for what the test itself put there."""
        own = {"theirs.py", "experiment-1.json", "token"}
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.name not in own]
        files = [path for path in files if "objectives" not in path.parts and "__pycache__" not in path.parts]
        return {**self.said, **{str(path.relative_to(self.folder)): path.read_bytes() for path in files}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("secrets")
    folder.chmod(0o700)
    made = Place(folder)
    yield made
    made.close()


def unpacked(data: bytes, depth: int = 3) -> Iterator[bytes]:
    """The data, and what is packed in it."""
    yield data
    if depth:
        for run in re.findall(rb"[A-Za-z0-9+/_-]{24,}={0,2}", data):
            plain = run.translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
            try:
                inner = base64.b64decode(plain[: len(plain) // 4 * 4])
            except binascii.Error:
                continue
            yield from unpacked(inner, depth - 1)
        for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]|\x1f\x8b\x08", data):
            try:
                inner = zlib.decompressobj(47).decompress(data[found.start() :], 1 << 22)
            except zlib.error:
                continue
            if inner:
                yield from unpacked(inner, depth - 1)


def forms(marker: str) -> list[bytes]:
    data = marker.encode()
    shifted = [
        base64.b64encode(b"\0" * n + data).rstrip(b"=")[-(-n * 8 // 6) : (n + len(data)) * 8 // 6] for n in range(3)
    ]
    return [data, marker.upper().encode(), quote(marker, safe="").encode(), data.hex().encode(), *shifted]


def found_in(left: dict[str, bytes], marks: dict[str, str]) -> list[str]:
    needles = {name: forms(marker) for name, marker in marks.items()}
    return [
        f"{name} in {where}"
        for where, data in left.items()
        for piece in unpacked(data)
        for name, needle in needles.items()
        if any(one in piece for one in needle)
    ]


def test_the_search_finds_what_is_hidden() -> None:
    mark = {"m": "zqm0123456789abcdef"}
    data = mark["m"].encode()
    picture = _picture(mark["m"])
    for hidden in (
        data,
        zlib.compress(data),
        base64.b64encode(b"x" + data),
        base64.b64encode(zlib.compress(data)),
        picture,
    ):
        assert found_in({"there": b"head " + hidden + b" tail"}, mark), hidden
    assert found_in({"there": b"nothing"}, mark) == []


def test_everything_planted_was_truly_there(place: Place) -> None:
    """Else the search below would prove nothing."""
    got = place.got
    statuses = {entry["activity"]["name"]: entry["status"] for entry in (got.journal or {})["run"]}
    assert statuses["leak"] == "failed", got.output
    assert all(statuses[name] == "succeeded" for name in ("tell", "log", "web", "echo", "target_alive")), statuses
    assert got.activity("target_alive")["output"]["value"] == 1.0
    assert place.answered > 10
    verdict = json.loads((place.reports / "verdict.json").read_text())
    hits = {lease["fault"]: lease["applied"] for lease in verdict["leases"]}
    assert hits["image_noise"] > 10 and hits["text_token_truncation"] > 10
    assert (place.folder / "chaos-1.log").read_bytes().count(b"DEBUG") > 20


def test_no_secret_is_left_behind(place: Place) -> None:
    assert found_in(place.left(), place.planted) == []


def test_no_prompt_picture_or_header_of_a_user_is_left_behind(place: Place) -> None:
    left = place.left()
    assert found_in(left, place.users) == []
    fragment = base64.b64encode(place.picture)[200:260]
    assert [where for where, data in left.items() if fragment in data or place.picture[150:200] in data] == []


def test_the_token_of_the_points_is_left_nowhere_else(place: Place) -> None:
    assert found_in(place.left(), {"token": (place.folder / "token").read_text().strip()}) == []


def test_samples_hold_canaries_only(place: Place) -> None:
    verdict = json.loads((place.reports / "verdict.json").read_text())
    assert verdict["samples"], "no canary was seen before and after"
    key = canary_key((place.folder / "token").read_text().strip())
    assert all(read_canary_id(key, one["request_id"]) for one in verdict["samples"])
