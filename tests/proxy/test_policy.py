"""Broken, oversized and unknown input: by declared policy forwarded untouched or refused, counted, never a crash."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import soundfile
from PIL import Image

from chaos_mm.proxy.policy import Limits
from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.traffic import audio_part, chat, clip, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream, split

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
JPEG, PNG, WAV = picture("JPEG"), picture("PNG"), clip()


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    idat = chunk(b"IDAT", rows) if rows else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(more) + idat + chunk(b"IEND", b"")


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]


def patched(data: bytes, at: int, form: str, number: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, number)
    return bytes(out)


def animated(kind: str) -> bytes:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


def stored(samples: object, subtype: str = "FLOAT", kind: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format=kind, subtype=subtype)
    return buffer.getvalue()


def other_format(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, kind)
    return buffer.getvalue()


BOMB = zlib.compress(bytes(2501) * 20000, 9)
IMAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "jpeg cut in half": (lambda: JPEG[: len(JPEG) // 2], "broken_media"),
    "jpeg without its end": (lambda: JPEG[:-40], "broken_media"),
    "jpeg of three bytes": (lambda: JPEG[:3], "broken_media"),
    "jpeg with thousands of scans": (lambda: JPEG + b"\xff\xda" * 2000, "broken_media"),
    "png cut in half": (lambda: PNG[: len(PNG) // 2], "broken_media"),
    "png with a flipped bit": (lambda: flipped(PNG, len(PNG) // 2), "broken_media"),
    "png without data": (lambda: png(8, 8, 8, 2, b""), "broken_media"),
    "png of no size": (lambda: png(0, 0, 8, 2, zlib.compress(b"")), "broken_media"),
    "png bomb of 49 kB": (lambda: png(20000, 20000, 1, 0, BOMB), "too_many_pixels"),
    "png that claims 60000 x 60000": (lambda: png(60000, 60000, 8, 2, b""), "too_many_pixels"),
    "animated png": (lambda: animated("PNG"), "animated"),
    "animated webp": (lambda: animated("WEBP"), "animated"),
    "gif": (lambda: other_format("GIF"), "unknown_format"),
    "tiff": (lambda: other_format("TIFF"), "unknown_format"),
    "bmp": (lambda: other_format("BMP"), "unknown_format"),
    "empty": (lambda: b"", "unknown_format"),
    "html": (lambda: b"<html>not found</html>", "unknown_format"),
    "svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unknown_format"),
    "pdf": (lambda: b"%PDF-1.7\n", "unknown_format"),
    "webp cut": (lambda: picture("WEBP")[:40], "broken_media"),
}
CLIPS: dict[str, tuple[Callable[[], bytes], str]] = {
    "not a number": (lambda: stored(np.array([0, np.nan, 0.5])), "non_finite"),
    "infinity": (lambda: stored(np.array([0, np.inf, 0.5])), "non_finite"),
    "rate 0": (lambda: patched(WAV, 24, "<I", 0), "broken_media"),
    "no channels": (lambda: patched(WAV, 22, "<H", 0), "broken_media"),
    "unknown tag": (lambda: patched(WAV, 20, "<H", 0x7777), "broken_media"),
    "rate of 4 billion": (lambda: patched(stored(np.zeros(4), "PCM_16"), 24, "<I", 4_000_000_000), ""),
    "rate of 1": (lambda: patched(WAV, 24, "<I", 1), "too_much_audio"),
    "header of 20 bytes": (lambda: WAV[:20], "broken_media"),
    "no data chunk": (lambda: WAV[:36], "broken_media"),
    "raw pcm": (lambda: b"\0\0" * 100, "unknown_format"),
    "rifx": (lambda: b"RIFX" + WAV[4:], "unknown_format"),
    "aiff": (lambda: stored(np.zeros(10), "PCM_16", "AIFF"), "unknown_format"),
    "empty": (lambda: b"", "unknown_format"),
    "flac cut in half": (lambda: clip("FLAC")[: len(clip("FLAC")) // 2], "broken_media"),
    "flac of four bytes": (lambda: b"fLaC", "broken_media"),
    "mp3 of two bytes": (lambda: b"\xff\xfb", "broken_media"),
    "mp3 of nothing": (lambda: b"ID3" + bytes(200), "broken_media"),
    "too long": (lambda: stored(np.zeros(16000 * 12), "PCM_U8"), "too_much_audio"),
}
LIMITS = Limits(max_audio_seconds=10.0)


@pytest.mark.parametrize("policy", ["pass", "refuse"])
@pytest.mark.parametrize(("kind", "name"), [("image", n) for n in IMAGES] + [("audio", n) for n in CLIPS])
async def test_broken_media(start_proxy: StartProxy, connect: Connect, kind: str, name: str, policy: str) -> None:
    make, reason = (IMAGES if kind == "image" else CLIPS)[name]
    fault = "image_noise" if kind == "image" else "audio_spectral_mask"
    part = image_part(make()) if kind == "image" else audio_part(make())
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url, on_undecodable=policy, limits=LIMITS) as proxy:
        proxy.inject(fault)
        request = post(upstream.authority, chat("hi", part))
        lines, body = split(await (await connect(proxy.url)).ask(request))
        if not reason:
            assert lines[0] == b"HTTP/1.1 200 OK"
        elif policy == "pass":
            assert [message.raw for message in upstream.received] == [request]
        else:
            status = 413 if reason in ("too_many_pixels", "too_much_audio") else 400
            assert lines[0].startswith(b"HTTP/1.1 %d " % status)
            error = json.loads(body)["error"]
            assert (error["code"], error["param"]) == (reason, "messages[1].content[1]")
            assert upstream.received == []
        if reason:
            assert proxy.count("undecodable_total", reason=reason) == 1
            evidence = proxy.release()
            assert (evidence["matched"], evidence["applied"], evidence["errored"]) == (1, 0, 1)


def gzipped(authority: str) -> bytes:
    return post(authority, b"\x1f\x8b....", "Content-Encoding: gzip")


def bad_base64(authority: str) -> bytes:
    return post(authority, chat({"type": "image_url", "image_url": {"url": "data:image/png;base64,a"}}))


BODIES: dict[str, tuple[Callable[[str], bytes], str, int]] = {
    "gzip": (gzipped, "content_encoding", 400),
    "not json": (lambda a: post(a, b'{"messages": ['), "invalid_json", 400),
    "no chat": (lambda a: post(a, b"[]"), "not_understood", 400),
    "bad base64": (bad_base64, "bad_base64", 400),
    "body above the limit": (lambda a: post(a, chat("x" * 300_000)), "body_too_large", 413),
}


@pytest.mark.parametrize("policy", ["pass", "refuse"])
@pytest.mark.parametrize("name", BODIES)
async def test_broken_bodies(start_proxy: StartProxy, connect: Connect, name: str, policy: str) -> None:
    make, reason, status = BODIES[name]
    upstream, limits = RecordingUpstream(lambda _: Answer([OK])), Limits(max_body_bytes=200_000)
    async with upstream.running(), start_proxy(upstream.url, on_undecodable=policy, limits=limits) as proxy:
        proxy.inject()
        request = make(upstream.authority)
        answer = await (await connect(proxy.url)).ask(request)
        if policy == "pass":
            assert (answer, [message.raw for message in upstream.received]) == (OK, [request])
        else:
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"x-chaos-mm-proxy-error: " + reason.encode() in split(answer)[0]
            assert upstream.received == []
        assert proxy.count("undecodable_total", reason=reason) == 1


@pytest.mark.parametrize("form", ["length", "chunked"])
async def test_a_body_that_outgrows_the_limits_streams_on(start_proxy: StartProxy, connect: Connect, form: str) -> None:
    body = chat("x" * 3_000_000)
    upstream, limits = RecordingUpstream(lambda _: Answer([OK])), Limits(max_held_bytes=1_000_000)
    async with upstream.running(), start_proxy(upstream.url, limits=limits) as proxy:
        proxy.inject()
        request = post(upstream.authority, body)
        if form == "chunked":
            head = request.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
            request = head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:2_000_000], body[2_000_000:]))
            request += b"0\r\n\r\n"
        assert await (await connect(proxy.url)).ask(request) == OK
        assert upstream.received[0].raw == request
        assert proxy.count("undecodable_total", reason="memory_budget") == 1
        assert proxy.count("held_bytes") == 0


async def test_a_remote_picture_passes_under_either_policy(start_proxy: StartProxy, connect: Connect) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://pictures.example/cat.jpg"}}
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url, on_undecodable="refuse") as proxy:
        proxy.inject()
        request = post(upstream.authority, chat(part))
        assert await (await connect(proxy.url)).ask(request) == OK
        assert upstream.received[0].raw == request
        assert proxy.count("undecodable_total", reason="remote_media") == 1


async def test_one_broken_part_does_not_save_the_others(start_proxy: StartProxy, connect: Connect) -> None:
    upstream = RecordingUpstream(lambda _: Answer([OK]))
    async with upstream.running(), start_proxy(upstream.url) as proxy:
        proxy.inject()
        parts = (image_part(JPEG[:50]), image_part(JPEG))
        await (await connect(proxy.url)).ask(post("x", chat(*parts)))
        urls = [part["image_url"]["url"] for part in json.loads(upstream.received[0].body)["messages"][1]["content"]]
        assert base64.b64decode(urls[0].split(",")[1]) == JPEG[:50]
        assert base64.b64decode(urls[1].split(",")[1]) != JPEG
        assert proxy.release()["applied"] == 1
