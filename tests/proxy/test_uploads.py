"""Multipart uploads, made by httpx and read back by the standard library's e-mail parser."""

import email
import email.message
from typing import Any

import httpx
import pytest

from chaos_mm.proxy.policy import Undecodable
from chaos_mm.proxy.uploads import read_upload
from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.traffic import clip
from tests.proxy.wires import Answer, Message, RecordingUpstream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
FIELDS = {"model": "whisper-1", "language": "en", "prompt": "caf\u00e9"}


def upload(data: bytes, fields: dict[str, str] = FIELDS) -> tuple[bytes, str]:
    """Body and Content-Type."""
    request = httpx.Request("POST", "http://x/", data=fields, files={"file": ("filename=a.wav", data, "audio/wav")})
    return request.read(), request.headers["content-type"]


def fields_of(body: bytes, content_type: str) -> dict[str, bytes]:
    parsed = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts: Any = parsed.get_payload()
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in parts}


def test_the_file_and_the_model_are_found() -> None:
    body, content_type = upload(clip())
    document = read_upload(body, content_type)
    assert (document.model, document.modalities) == ("whisper-1", {"audio"})
    (part,) = document.parts
    assert body[part.span.start : part.span.end] == clip()


@pytest.mark.parametrize("preamble", [b"", b"to be ignored\r\n"])
@pytest.mark.parametrize("data", [b"", b"\r\n", b"--", b"\r\n--", b"\r\n\r\n", bytes(range(256))])
def test_any_content_is_delimited(data: bytes, preamble: bytes) -> None:
    body, content_type = upload(data)
    (part,) = read_upload(preamble + body, content_type).parts
    assert (preamble + body)[part.span.start : part.span.end] == data


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=nope"]
    + [
        f"multipart/form-data; boundary={'b' * 71}",
        "multipart/mixed; boundary=x",
        "multipart/form-data; boundary=\xe9",
    ],
)
def test_a_content_type_that_does_not_fit(content_type: str) -> None:
    with pytest.raises(Undecodable) as caught:
        read_upload(upload(b"x")[0], content_type)
    assert caught.value.reason == "not_understood"


def test_a_torn_body() -> None:
    body, content_type = upload(b"x" * 50)
    for end in range(0, len(body) - 6):
        with pytest.raises(Undecodable):
            read_upload(body[:end], content_type)


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III")])
async def test_a_clip_is_masked_and_every_other_field_kept(
    start_proxy: StartProxy, connect: Connect, kind: str, subtype: str
) -> None:
    data = clip(kind, subtype)
    body, content_type = upload(data)
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
    raw = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        proxy.inject("audio_spectral_mask", params={"share": 0.4, "region": "time"})
        assert (await (await connect(proxy.url)).ask(raw)).startswith(b"HTTP/1.1 200 OK")
        sent = fields_of(received(upstream).body, content_type)
        assert sent.pop("file") != data
        assert {name: value.decode() for name, value in sent.items()} == FIELDS
        assert proxy.release()["applied"] == 1


def received(upstream: RecordingUpstream) -> Message:
    (message,) = upstream.received
    return message
