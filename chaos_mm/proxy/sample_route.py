"""`GET /samples?owner=<run>`: what a run's faults did to its canaries, as pictures, sound and text for the report.

Decoding, scaling and drawing happen here, in the control API's own thread, when somebody asks.
"""

import base64
import io
import json
import logging
import os
import wave
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import orjson
from PIL import Image as PillowImage

from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.core.errors import BadRequest
from chaos_mm.core.fault import Target
from chaos_mm.core.media import Audio
from chaos_mm.proxy.bodies import Form
from chaos_mm.proxy.data_uri import read_payload
from chaos_mm.proxy.json_spans import Span
from chaos_mm.proxy.media.audio import open_audio
from chaos_mm.proxy.media.samples import to_codes
from chaos_mm.proxy.media.spectrogram import draw
from chaos_mm.proxy.media.wav import read_layout
from chaos_mm.proxy.policy import Limits, whereabouts
from chaos_mm.proxy.samples import Sample, Samples

logger = logging.getLogger("chaos_mm.proxy")
MAX_ANSWER_BYTES: Final = 1024**2
MAX_SIDE: Final = 640
MAX_PICTURE_BYTES: Final = 250_000  # of the strongest noise at 640 x 640; two beside two clean ones fit an answer
MAX_WAV_BYTES: Final = 200_000
MAX_CHARACTERS: Final = 2000
_WAV_HEAD_BYTES = 44
_ENVELOPE_BYTES = 64
_QUALITIES = (90, 75, 50)
Entry = dict[str, Any]


def samples_route(samples: Samples, limits: Limits, count: Callable[[str], object]) -> Route:
    """The route over a store; `count` is told "undrawable" of each sample that could not be shown."""

    def answer(request: Request) -> Response:
        owner = request.query.get("owner", "")
        if not owner:
            raise BadRequest("samples are asked for by run: /samples?owner=<run id>")
        found = samples.run(owner)
        entries = fitted([entry for sample in found if (entry := _drawn(sample, limits, count)) is not None])
        return Response.json({"samples": entries, "lost": len(found) - len(entries)})

    return Route("GET", "/samples", answer)


def _drawn(sample: Sample, limits: Limits, count: Callable[[str], object]) -> Entry | None:
    try:
        return shown(sample, limits)
    except Exception as error:  # a medium that cannot be drawn costs the report this one sample, nothing else
        logger.warning("a sample could not be drawn: %s", whereabouts(error))
        count("undrawable")
        return None


def shown(sample: Sample, limits: Limits) -> Entry:
    """One sample as JSON; raises whatever decoding and drawing raise."""
    view = {Target.IMAGE: _pictures, Target.AUDIO: _sounds}.get(sample.target, _texts)
    return {
        "lease": sample.lease.name,
        "fault": sample.lease.fault.name,
        "kind": sample.target.value,
        "part": sample.part,
        "request_id": sample.request_id,
        "achieved": dict(sample.achieved),
        **view(_content(sample.form, sample.before), _content(sample.form, sample.after), limits),
    }


def fitted(entries: list[Entry]) -> list[Entry]:
    """At most 1 MiB of JSON: media go first, then the second sample of each lease, then samples from the end."""
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(entry["lease"], entry)
    later = sorted(reversed(entries), key=lambda entry: first[entry["lease"]] is entry)
    for entry in later:
        if _size(entries) > MAX_ANSWER_BYTES:
            entry.pop("media_before", None)
            entry.pop("media_after", None)
    for entry in later:
        if _size(entries) > MAX_ANSWER_BYTES:
            entries = [other for other in entries if other is not entry]
    return entries


def _size(entries: list[Entry]) -> int:
    return _ENVELOPE_BYTES + sum(len(json.dumps(entry)) + 2 for entry in entries)


def _content(form: Form, stored: bytes) -> bytes:
    """The medium's own bytes, or text as UTF-8."""
    if form is Form.RAW:
        return stored
    if form is Form.TEXT:
        return str(orjson.loads(stored)).encode()
    return read_payload(Span(0, len(stored)).value(stored), bare=form is Form.BASE64).data


def _media(kind: str, data: bytes) -> dict[str, str]:
    return {"type": kind, "data": base64.b64encode(data).decode()}


def _pictures(before: bytes, after: bytes, limits: Limits) -> Entry:
    return {"before": _picture(before), "after": _picture(after)}


def _picture(data: bytes) -> dict[str, str]:
    """As it travelled; as WebP at most 640 pixels wide and high when it is larger, or too heavy for an answer."""
    with PillowImage.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as opened:
        if max(opened.size) <= MAX_SIDE and len(data) <= MAX_PICTURE_BYTES:
            kind = "JPEG" if opened.format == "MPO" else str(opened.format)  # a photograph with extras is a JPEG
            return _media(f"image/{kind.lower()}", data)
        scaled = _in_colour(opened)
    scaled.thumbnail((MAX_SIDE, MAX_SIDE), PillowImage.Resampling.LANCZOS)
    for quality in _QUALITIES:
        out = io.BytesIO()
        scaled.save(out, "WEBP", quality=quality)
        if out.tell() <= MAX_PICTURE_BYTES:
            break
    return _media("image/webp", out.getvalue())


def _in_colour(picture: PillowImage.Image) -> PillowImage.Image:
    if picture.mode.startswith("I"):  # Pillow's own conversion clips sixteen bits instead of scaling them
        return PillowImage.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
    return picture.convert("RGBA" if picture.has_transparency_data else "RGB")


def _sounds(before: bytes, after: bytes, limits: Limits) -> Entry:
    clips = [open_audio(data, limits).value for data in (before, after)]
    (first, second), axes = draw(clips)
    return {
        "before": _media("image/png", first),
        "after": _media("image/png", second),
        "axes": axes._asdict(),
        "media_before": _media("audio/wav", _playable(before, clips[0])),
        "media_after": _media("audio/wav", _playable(after, clips[1])),
    }


def _playable(data: bytes, clip: Audio) -> bytes:
    """A WAV of plain PCM as it travelled; else 16 bits, mixed down to one channel, its beginning when it is long."""
    if len(data) <= MAX_WAV_BYTES and read_layout(data) is not None:
        return data
    frames = clip.samples[: (MAX_WAV_BYTES - _WAV_HEAD_BYTES) // 2]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, clip.rate, 0, "NONE", "not compressed"))
        file.writeframes(to_codes(frames.mean(axis=1), 16).astype("<i2").tobytes())
    return out.getvalue()


def _texts(before: bytes, after: bytes, limits: Limits) -> Entry:
    """Long ones from shortly before where they first differ, so that the change is in sight."""
    old, new = before.decode(), after.decode()
    start = 0
    if max(len(old), len(new)) > MAX_CHARACTERS:
        start = max(0, len(os.path.commonprefix((old, new))) - MAX_CHARACTERS // 2)
    return {"before": _text(old, start), "after": _text(new, start)}


def _text(text: str, start: int) -> dict[str, str]:
    lead = "…" if start else ""
    end = start + MAX_CHARACTERS - len(lead)
    if len(text) > end:
        return _media("text/plain", f"{lead}{text[start : end - 1]}…".encode())
    return _media("text/plain", f"{lead}{text[start:]}".encode())
