"""Nothing of a user's is kept: a planted prompt, picture and header are looked for wherever we write."""

import base64
import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.live.conftest import Service

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an http_proxy is not for us


def _picture(marker: str) -> bytes:
    noise = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8)
    text = PngInfo()
    text.add_text("comment", marker)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG", pnginfo=text)
    return out.getvalue()


def _ask(service: Service, marker: str, body: dict[str, Any] | bytes) -> int:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {marker}", "X-Tenant": marker}
    request = urllib.request.Request(f"{service.url}/v1/chat/completions?user={marker}", data, headers)
    try:
        with DIRECT.open(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return int(error.code)


def _chat(marker: str, picture: bytes) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": f"what is {marker}"}]
    return {"model": "chaos-mm-tiny", "messages": [{"role": "user", "content": parts}], "user": marker}


def test_a_planted_prompt_and_picture_are_nowhere(service: Service, marker: str, tmp_path: Path):
    picture = _picture(marker)
    broken = _chat(marker, picture[: len(picture) // 2])
    with service.inject("image_noise", {"sigma": 0.2}, blast_radius={"selector": "live"}) as injection:
        assert _ask(service, marker, _chat(marker, picture)) == 200
        assert _ask(service, marker, broken) == 400
        assert _ask(service, marker, json.dumps(broken).encode()[:-9]) == 400
        seen = [json.dumps(injection.evidence), service.control.text("/metrics"), json.dumps(service.control.leases())]
    assert injection.evidence["applied"] == 1
    with DIRECT.open(f"{service.target.url}/metrics") as response:
        seen.append(response.read().decode())
    files = [path for path in service.state.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".log"]) >= 2
    fragments = [marker, base64.b64encode(picture)[200:260].decode(), marker.upper()]
    for text in [*seen, *(path.read_bytes().decode("utf-8", "replace") for path in files)]:
        assert not [part for part in fragments if part in text]
