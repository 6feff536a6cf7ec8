"""Mixed requests and odd answers, drawn from a seed: what real clients and servers send, and what they may send."""

import base64
import gzip
import io
import json
import random
from dataclasses import dataclass
from functools import cache

import numpy as np
import soundfile
from PIL import Image

from tests.proxy.wires import Answer, Message


@cache
def picture(kind: str = "JPEG", size: int = 48, **options: object) -> bytes:
    """A small structured picture in that format."""
    x = np.linspace(0, 255, size, dtype=np.uint8)
    pixels = np.stack([np.tile(x, (size, 1)), np.tile(x[:, None], (1, size)), np.full((size, size), 90, np.uint8)], 2)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@cache
def clip(kind: str = "WAV", subtype: str = "PCM_16", seconds: float = 0.5) -> bytes:
    """A 440 Hz tone, 16 kHz mono."""
    tone = 0.3 * np.sin(np.arange(int(16000 * seconds)) * 2 * np.pi * 440 / 16000)
    buffer = io.BytesIO()
    soundfile.write(buffer, tone, 16000, format=kind, subtype=subtype)
    return buffer.getvalue()


def image_part(data: bytes, mime: str = "image/jpeg") -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{base64.b64encode(data).decode()}"}}


def audio_part(data: bytes, kind: str = "wav") -> dict[str, object]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": kind}}


def chat(*parts: object, **more: object) -> bytes:
    """A chat completion body; strings become text parts."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def post(authority: str, body: bytes, *lines: str, path: str = "/v1/chat/completions") -> bytes:
    """A POST of a JSON body with further head lines."""
    head = (f"POST {path} HTTP/1.1", f"Host: {authority}", "Content-Type: application/json", *lines)
    return "\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body


def chunked(body: bytes, rng: random.Random) -> bytes:
    """Chunked coding of uneven pieces, some with an extension, upper and lower case sizes, a trailer."""
    out, at = [], 0
    while at < len(body):
        size = rng.randint(1, max(1, len(body) // 3))
        piece = body[at : at + size]
        number = f"{len(piece):X}" if rng.random() < 0.5 else f"00{len(piece):x}"
        out.append(f"{number}{';ext=1' if rng.random() < 0.3 else ''}\r\n".encode() + piece + b"\r\n")
        at += size
    return b"".join((*out, b"0\r\nX-Sum: 1\r\n\r\n" if rng.random() < 0.5 else b"0\r\n\r\n"))


@dataclass
class Mixed:
    """A request: its bytes in the pieces a client would send."""

    pieces: tuple[bytes, ...]


def mixed(authority: str, count: int, seed: int) -> list[Mixed]:
    """`count` requests of every kind."""
    rng = random.Random(seed)
    return [_one(authority, index, rng) for index in range(count)]


def _one(authority: str, index: int, rng: random.Random) -> Mixed:
    target, body = rng.choice(_KINDS)(rng)
    method = "POST" if body else rng.choice(["GET", "HEAD", "OPTIONS", "DELETE", "get", "PURGE"])
    lines = [f"{method} {target} HTTP/1.1", *_odd_lines(authority, index, rng)]
    if not body:
        return Mixed(("\r\n".join((*lines, "", "")).encode("latin-1"),))
    expects = rng.random() < 0.1
    if expects:
        lines.append("Expect: 100-continue")
    if rng.random() < 0.3:
        lines.append(rng.choice(["Transfer-Encoding: chunked", "transfer-encoding:Chunked"]))
        payload = chunked(body, rng)
    else:
        lines.append(f"Content-Length: {len(body)}")
        payload = body
    head = "\r\n".join((*lines, "", "")).encode("latin-1")
    cut = rng.randint(0, len(payload))
    return Mixed((head, payload) if expects else (head + payload[:cut], payload[cut:]))


def _odd_lines(authority: str, index: int, rng: random.Random) -> list[str]:
    lines = [
        f"Host: {authority}",
        f"X-Index: {index}",
        "aCCept:   */*",
        "X-Dup: 1",
        "x-dup: 2",
        "X-DUP:\t3 ",
        "X-Empty:",
        "X-Latin: caf\xe9 \xff",
        "Cookie: a=1; b=2",
        "User-Agent: raw/1.0 (odd; client)",
        "Accept-Encoding: gzip, br",
        "Authorization: Bearer sk-test",
        f"X-Long: {'v' * rng.randint(0, 3000)}",
    ]
    rng.shuffle(lines)
    chosen = [line for line in lines if line.startswith(("Host", "X-Index")) or rng.random() < 0.6]
    if rng.random() < 0.7:
        chosen.append(rng.choice(["Content-Type: application/json", "content-type: application/json; charset=utf-8"]))
    if rng.random() < 0.3:
        chosen.append(f"X-Request-ID: req-{index}")
    return chosen


def _chat(rng: random.Random) -> tuple[str, bytes]:
    parts: list[object] = ['what is this? \u00e9\u4e2d\U0001f600 \\ " \n']
    parts += rng.sample([image_part(picture("JPEG")), image_part(picture("PNG"), "image/png"), audio_part(clip())], 2)
    body = chat(*parts, stream=rng.random() < 0.5)
    odd = body.replace(b'"model"', b'"mod\\u0065l"', 1) if rng.random() < 0.3 else body
    return "/v1/chat/completions" + rng.choice(["", "?x=1&y=%2f"]), odd


def _multipart(rng: random.Random) -> tuple[str, bytes]:
    edge = b"--b0undary"
    part = b'\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + clip()
    return "/v1/audio/transcriptions", edge + part + b"\r\n" + edge + b"--\r\n"


def _binary(rng: random.Random) -> tuple[str, bytes]:
    return "/upload//double/%7Euser;v=1?q=a+b&q=%C3%A9", rng.randbytes(rng.choice([1, 1000, 70_000, 300_000]))


_KINDS = (
    _chat,
    _chat,
    _multipart,
    _binary,
    lambda rng: ("/v1/embeddings", json.dumps({"input": "x" * rng.randint(1, 5000)}).encode()),
    lambda rng: ("/v1/chat/completions", rng.choice([b"{", b"[1]", b"null", b'{"messages": 3}', b"\xff\xfe"])),
    lambda rng: ("/v1/completions", gzip.compress(b'{"prompt": "hi"}')),
    lambda rng: ("/v1/models", b""),
    lambda rng: ("/health?verbose", b""),
    lambda rng: ("*", b""),
)


def answer_for(message: Message) -> Answer:
    """One of the odd answers, picked by X-Index so that direct and proxied requests get the same."""
    index = int(message.header("x-index") or 0)
    pieces, close = _ANSWERS[index % len(_ANSWERS)](random.Random(index))
    if message.head.method == b"HEAD":
        raw = b"".join(pieces)
        end = raw.index(b"\r\n\r\n", 60 if raw.startswith(b"HTTP/1.1 103") else 0)
        pieces, close = [raw[: end + 4]], False
    return Answer(pieces, close)


def _fixed(raw: bytes) -> object:
    return lambda rng: ([raw], False)


def _sse(rng: random.Random) -> tuple[list[bytes], bool]:
    events = [f'data: {{"n": {n}}}\n\n'.encode() for n in range(rng.randint(1, 8))] + [b"data: [DONE]\n\n"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%s\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"], False


def _large(rng: random.Random) -> tuple[list[bytes], bool]:
    body = rng.randbytes(200_000)
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body[:70_000], body[70_000:]], False


def _odd_chunks(rng: random.Random) -> tuple[list[bytes], bool]:
    head = b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    return [head + chunked(rng.randbytes(5000), rng)], False


_ZIPPED = gzip.compress(b'{"ok": true}' * 50, mtime=0)
_ANSWERS = (
    _sse,
    _large,
    _odd_chunks,
    _fixed(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-L: \xe9\xff\r\n\r\n{}"),
    _fixed(b'HTTP/1.1 404 Nope, Not Here\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"error":1}'),
    _fixed(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    _fixed(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 99\r\n\r\n'),
    _fixed(b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n"),
    _fixed(
        b"HTTP/1.1 500 Oops\r\nServer: \r\nConnection: keep-alive\r\nKeep-Alive: max=5\r\nContent-Length: 4\r\n\r\nboom"
    ),
    _fixed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(_ZIPPED), _ZIPPED)),
    _fixed(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
    lambda rng: ([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", rng.randbytes(3000)], True),
    lambda rng: ([b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nold"], True),
)
