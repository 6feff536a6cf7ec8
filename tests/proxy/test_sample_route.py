"""The route: who may ask, how media are shown, and that the answer stays small and whole."""

import asyncio
import base64
import io
import json
import logging
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from chaos_mm.control.client import ControlClient
from chaos_mm.control.messages import Request
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.errors import BadRequest, Unauthorized
from chaos_mm.core.fault import Target
from chaos_mm.core.lease import Lease
from chaos_mm.proxy.bodies import Form
from chaos_mm.proxy.policy import Limits
from chaos_mm.proxy.sample_route import (
    MAX_ANSWER_BYTES,
    MAX_CHARACTERS,
    MAX_PICTURE_BYTES,
    MAX_WAV_BYTES,
    fitted,
    samples_route,
    shown,
)
from chaos_mm.proxy.samples import MAX_BYTES, Sample
from tests.processes import start
from tests.proxy.conftest import OWNER, Connect
from tests.proxy.media.samples import loaded, saved, scene, tone, written
from tests.proxy.test_samples import CANARIES, OK, Store, data
from tests.proxy.traffic import audio_part, chat, clip, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream

LIMITS = Limits()


def sample(target: Target, form: Form, before: bytes, after: bytes, lease: Lease | None = None) -> Sample:
    return Sample(lease or Store().lease("run"), "q1", "file", target, form, before, after, {"snr_db": 3.0})


def shown_as(target: Target, before: bytes, after: bytes) -> dict[str, Any]:
    return shown(sample(target, Form.RAW, before, after), LIMITS)


def noise(width: int, height: int, mode: str = "RGB", seed: int = 1) -> Image.Image:
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8), mode)


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("JPEG", {"quality": 80}), ("WEBP", {"lossless": True})])
def test_a_picture_of_a_usual_size_keeps_its_bytes(kind: str, options: dict[str, Any]) -> None:
    mode = "RGB" if kind == "JPEG" else "RGBA"
    before, after = (saved(scene(width, 640).convert(mode), kind, **options) for width in (640, 9))
    found = shown_as(Target.IMAGE, before, after)
    assert (data(found["before"]), data(found["after"])) == (before, after)
    assert found["before"]["type"] == found["after"]["type"] == f"image/{kind.lower()}"
    assert "axes" not in found and "media_before" not in found


def test_a_photograph_with_extras_is_a_jpeg() -> None:
    photo = saved(scene().convert("RGB"), "MPO", save_all=True, append_images=[scene(20, 20).convert("RGB")])
    assert shown_as(Target.IMAGE, photo, photo)["after"] == {
        "type": "image/jpeg",
        "data": base64.b64encode(photo).decode(),
    }


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK"])
def test_a_larger_picture_is_scaled(mode: str) -> None:
    large = scene(1600, 800).convert(mode)
    found = shown_as(Target.IMAGE, saved(large, "JPEG" if mode == "CMYK" else "PNG"), picture("PNG"))
    assert found["before"]["type"] == "image/webp"
    small = loaded(data(found["before"]))
    assert small.size == (640, 320)
    wanted, seen = (np.asarray(image.convert("RGB"), float) for image in (large.resize((640, 320)), small))
    opaque = np.asarray(small.convert("RGBA"))[..., 3] > 250
    assert np.abs(seen - wanted)[opaque].mean() < 6
    assert opaque.all() != (mode in ("RGBA", "P"))


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.tile(np.linspace(0, 65535, 1000).astype(np.uint16), (10, 1))
    found = shown_as(Target.IMAGE, saved(Image.fromarray(ramp), "PNG"), picture("PNG"))
    seen = np.asarray(loaded(data(found["before"])).convert("L"))[3]
    assert np.abs(seen - np.linspace(0, 255, 640)).max() < 8


def test_a_heavy_picture_is_coded_anew_in_its_own_size() -> None:
    heavy = saved(noise(600, 500), "PNG")
    assert len(heavy) > 3 * MAX_PICTURE_BYTES
    found = shown_as(Target.IMAGE, picture("PNG"), heavy)
    assert loaded(data(found["after"])).size == (600, 500)
    assert len(data(found["after"])) <= MAX_PICTURE_BYTES


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
def test_a_plain_wav_that_is_short_keeps_its_bytes(subtype: str) -> None:
    before, after = written(tone(2), subtype=subtype), written(tone(2)[::-1], subtype=subtype)
    found = shown_as(Target.AUDIO, before, after)
    assert (data(found["media_before"]), data(found["media_after"])) == (before, after)
    assert found["media_before"]["type"] == found["media_after"]["type"] == "audio/wav"


@pytest.mark.parametrize(
    ("kind", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_24"), ("MP3", "MPEG_LAYER_III"), ("WAV", "ULAW")]
)
def test_other_and_long_clips_become_a_short_wav(kind: str, subtype: str) -> None:
    rng = np.random.default_rng(1)
    long = np.cumsum(rng.normal(0, 0.01, (48000 * 4, 2)), axis=0)
    long = (0.5 * long / np.abs(long).max()).astype(np.float32)
    source = written(long, kind, subtype, 48000)
    heard = data(shown_as(Target.AUDIO, source, source)["media_after"])
    assert MAX_WAV_BYTES - 4 <= len(heard) <= MAX_WAV_BYTES
    with wave.open(io.BytesIO(heard)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 48000)
        codes = np.frombuffer(file.readframes(1 << 20), "<i2")
    decoded = soundfile.read(io.BytesIO(source), dtype="float64", always_2d=True)[0].mean(axis=1)
    assert np.abs(codes / 32768 - decoded[: len(codes)]).max() < 2 / 32768


def test_audio_axes_are_the_pictures_own() -> None:
    found = shown_as(Target.AUDIO, written(tone(seconds=1.5, rate=8000), rate=8000), written(tone(), rate=16000))
    assert found["axes"] == {"seconds": 1.5, "hz_max": 8000.0, "db_min": -80.0, "db_max": 0.0}


def texts(before: str, after: str) -> tuple[str, str]:
    stored = (json.dumps(text).encode() for text in (before, after))
    found = shown(sample(Target.TEXT, Form.TEXT, *stored), LIMITS)
    old, new = data(found["before"]).decode(), data(found["after"]).decode()
    assert max(len(old), len(new)) <= MAX_CHARACTERS
    return old, new


def test_short_texts_are_whole() -> None:
    assert texts('a\n"é\U0001f600 b', "") == ('a\n"é\U0001f600 b', "")
    assert texts("x" * MAX_CHARACTERS, "y" * MAX_CHARACTERS) == ("x" * MAX_CHARACTERS, "y" * MAX_CHARACTERS)


def test_long_texts_show_where_they_part() -> None:
    text = "".join(f"{n:05d}," for n in range(3000))
    old, new = texts(text, text[:9000])
    assert old == f"…{text[8000:9998]}…"
    assert new == f"…{text[8000:9000]}"
    old, new = texts(text, text[600:])
    assert (old, new) == (f"{text[:1999]}…", f"{text[600:2599]}…")


@pytest.mark.parametrize("form", [Form.URI, Form.BASE64])
def test_what_stands_in_json_is_decoded(form: Form) -> None:
    prefix = "data:image/png;base64," if form is Form.URI else ""
    plain = f'"{prefix}{base64.b64encode(picture("PNG")).decode()}"'
    for stored in (plain, plain.replace("/", "\\/")):
        found = shown(sample(Target.IMAGE, form, stored.encode(), plain.encode()), LIMITS)
        assert data(found["before"]) == data(found["after"]) == picture("PNG")


def asked(store: Store, owner: str = "run") -> dict[str, Any]:
    route = samples_route(store.samples, LIMITS, store._count)
    response = route.handler(Request("GET", "/samples", {"owner": owner}))
    assert isinstance(response.body, bytes)
    assert len(response.body) <= MAX_ANSWER_BYTES
    found: dict[str, Any] = json.loads(response.body)
    return found


def test_a_medium_that_cannot_be_drawn_costs_that_sample_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = Store(MAX_BYTES)
    nan = written(np.full((100, 1), np.nan, np.float32), subtype="FLOAT")
    broken = [
        (Target.IMAGE, Form.RAW, picture("PNG"), b"secret words"),
        (Target.AUDIO, Form.RAW, clip(), nan),
        (Target.AUDIO, Form.RAW, b"secret words", clip()),
        (Target.TEXT, Form.TEXT, b'"whole"', b'"secret words'),
        (Target.IMAGE, Form.URI, b'"https://secret/words"', b'"data:x"'),
        (Target.TEXT, Form.TEXT, b'"before"', b'"after"'),
    ]
    for n, made in enumerate(broken):
        store.samples.keep([sample(*made, lease=store.lease("run", f"a{n}"))])
    found = asked(store)
    assert [data(one["after"]) for one in found["samples"]] == [b"after"]
    assert found["lost"] == 5
    assert store.counts == {"kept": 6, "undrawable": 5}
    assert "secret" not in caplog.text
    assert caplog.text.count("a sample could not be drawn") == 5


def test_nothing_of_another_run_and_nothing_without_a_name() -> None:
    store = Store()
    store.samples.keep([sample(Target.TEXT, Form.TEXT, b'"a"', b'"b"', store.lease("run"))])
    assert len(asked(store)["samples"]) == 1
    assert asked(store, "other") == {"samples": [], "lost": 0}
    with pytest.raises(BadRequest, match="owner=<run id>"):
        samples_route(store.samples, LIMITS, store._count).handler(Request("GET", "/samples"))


def test_media_go_first_and_then_the_second_samples() -> None:
    def entry(lease: str, size: int, media: int = 0) -> dict[str, Any]:
        more = {"media_before": {"data": "m" * media}, "media_after": {"data": "m" * media}} if media else {}
        return {"lease": lease, "before": {"data": "x" * size}, **more}

    def left(*entries: dict[str, Any]) -> list[tuple[str, bool]]:
        made = fitted(list(entries))
        assert len(json.dumps({"samples": made, "lost": 99})) <= MAX_ANSWER_BYTES
        return [(one["lease"], "media_before" in one) for one in made]

    small, half = 1000, 400_000
    assert left(entry("a", small, small), entry("a", small, small)) == [("a", True), ("a", True)]
    assert left(entry("a", small, half), entry("a", small, half)) == [("a", True), ("a", False)]
    assert left(entry("a", half, half), entry("a", half, half)) == [("a", False), ("a", False)]
    assert left(entry("a", half), entry("a", half), entry("b", half), entry("b", half)) == [("a", False), ("b", False)]
    assert left(entry("a", half), entry("b", half), entry("c", half)) == [("a", False), ("b", False)]
    assert left(entry("a", 2 * MAX_ANSWER_BYTES)) == []


def test_the_strongest_noise_on_the_largest_pictures_fits() -> None:
    store, clean = Store(MAX_BYTES), scene(640, 640).convert("RGB")
    lease, rng = store.lease("run"), np.random.default_rng(1)
    before = saved(clean, "PNG")
    for _ in range(2):
        pixels = np.clip(np.asarray(clean) + rng.normal(0, 0.38 * 255, (640, 640, 3)), 0, 255).astype(np.uint8)
        after = saved(Image.fromarray(pixels), "PNG")
        store.samples.keep([sample(Target.IMAGE, Form.RAW, before, after, lease)])
    found = asked(store)
    assert (len(found["samples"]), found["lost"]) == (2, 0)


def test_two_long_clips_keep_their_spectrograms() -> None:
    store = Store(MAX_BYTES)
    lease = store.lease("run")
    rng = np.random.default_rng(1)
    for _ in range(2):
        one, other = (written(rng.normal(0, 0.2, (160_000, 1)).astype(np.float32)) for _ in range(2))
        store.samples.keep([sample(Target.AUDIO, Form.RAW, one, other, lease)])
    found = asked(store)["samples"]
    assert [set(one) >= {"before", "after", "axes"} for one in found] == [True, True]
    assert ["media_before" in one for one in found] == [True, False]


async def test_a_running_proxy_hands_them_out_to_whoever_has_the_token(tmp_path: Path, connect: Connect) -> None:
    async with RecordingUpstream(lambda _: Answer([OK])).running() as upstream:
        arguments = ("--upstream", upstream.url, "--port", "0", "--control-port", "0")
        proxy = await asyncio.to_thread(start, "proxy", *arguments, state=tmp_path)
        try:
            point = ControlClient(proxy.control_url, token_file=tmp_path / "token")
            key = canary_key((tmp_path / "token").read_text().strip())
            lease = {"owner": OWNER, "blast_radius": CANARIES, "ttl_seconds": 60}
            await asyncio.to_thread(point.put_lease, "noise", {**lease, "fault": "image_noise"})
            await asyncio.to_thread(point.put_lease, "mask", {**lease, "fault": "audio_spectral_mask"})
            client, request = await connect(proxy.url), chat("?", image_part(picture()), audio_part(clip()))
            for n in range(3):
                await client.ask(post("x", request, f"X-Request-Id: {canary_id(key, OWNER, n)}"))
            await client.ask(post("x", request))
            for name in ("noise", "mask"):
                await asyncio.to_thread(point.release, name, OWNER)
            found = await asyncio.to_thread(lambda: point.get("/samples", owner=OWNER))
            assert [one["fault"] for one in found["samples"]] == ["image_noise"] * 2 + ["audio_spectral_mask"] * 2
            assert {data(one["before"]) for one in found["samples"][:2]} == {picture()}
            assert found["lost"] == 0
            assert 'chaos_mm_proxy_samples_total{outcome="kept"} 4.0' in point.text("/metrics")
            stranger = ControlClient(proxy.control_url, "not the token")
            stranger._proven = True
            with pytest.raises(Unauthorized):
                await asyncio.to_thread(lambda: stranger.get("/samples", owner=OWNER))
        finally:
            await asyncio.to_thread(proxy.stop)
