"""Nothing of a user's request is written down: not in logs, not in metrics, not in the proxy's own error answers."""

import base64
import logging

import pytest

from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.traffic import audio_part, chat, clip, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"
PLANTED = ("my-planted-prompt", "my-planted-model", "my-planted-key", "my-planted-query", "my-planted-id")


@pytest.mark.parametrize("policy", ["pass", "refuse"])
async def test_a_planted_request_leaves_no_trace(
    start_proxy: StartProxy, connect: Connect, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    caplog.set_level(logging.DEBUG)
    photo = picture("JPEG", 77)
    parts = ("my-planted-prompt " * 30, image_part(photo), audio_part(clip()))
    broken = ("my-planted-prompt", image_part(photo[:99]), audio_part(b"my-planted-prompt"))
    answers = []
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url, on_undecodable=policy) as proxy:
        for fault in ("image_noise", "audio_spectral_mask", "text_token_truncation"):
            proxy.inject(fault)
            for some in (parts, broken):
                body = chat(*some, model="my-planted-model")
                lines = ("Authorization: Bearer my-planted-key", "X-Request-Id: my-planted-id")
                raw = post("x", body, *lines, path="/v1/chat/completions?my-planted-query")
                answers.append(await (await connect(proxy.url)).ask(raw))
                answers.append(await (await connect(proxy.url)).ask(raw[:-1] + b"!"))
            proxy.release()
        written = caplog.text + proxy.metrics.text()
        written += b"".join(answer for answer in answers if answer != OK).decode()
    assert len(upstream.received) > 3
    for trace in (*PLANTED, base64.b64encode(photo).decode()[200:240]):
        assert trace not in written
