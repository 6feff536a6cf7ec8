"""Whatever the bytes, a codec answers with a medium or with `Undecodable`: nothing else, in bounded time and memory."""

import random
import tracemalloc
from typing import Any

import pytest

from chaos_mm.proxy.media.audio import open_audio
from chaos_mm.proxy.media.image import open_image
from chaos_mm.proxy.policy import Limits, Undecodable
from tests.proxy.media.samples import saved, scene, tone, written

LIMITS = Limits(max_pixels=1_000_000, max_audio_seconds=5.0)
PICTURES = {
    "jpeg": saved(scene().convert("RGB"), "JPEG"),
    "progressive": saved(scene().convert("RGB"), "JPEG", progressive=True),
    "png": saved(scene(), "PNG"),
    "palette": saved(scene().convert("RGB").quantize(9), "PNG", transparency=2),
    "webp": saved(scene(), "WEBP"),
    "lossless": saved(scene(), "WEBP", lossless=True),
}
CLIPS = {
    "wav": written(tone()),
    "wav24": written(tone(2), "WAVEX", "PCM_24"),
    "adpcm": written(tone(), "WAV", "IMA_ADPCM"),
    "flac": written(tone(), "FLAC"),
    "mp3": written(tone(), "MP3", "MPEG_LAYER_III"),
}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, drop, repeat or insert bytes, mostly near the front where headers live."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if rng.random() < 0.5 else rng.randrange(min(80, len(out)))
        match rng.randrange(5):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice([0, 255, 127, 128])
            case 2:
                del out[at : at + rng.randint(1, 30)]
            case 3:
                out[at:at] = out[at : at + rng.randint(1, 30)]
            case _:
                del out[max(at, 4) :]
        if not out:
            break
    return bytes(out)


def survive(open_medium: Any, data: bytes) -> str:
    try:
        medium = open_medium(data, LIMITS)
        encoded = medium.encode(medium.value)
        medium.achieved(encoded, medium.value)
    except Undecodable as error:
        return error.reason
    return "decoded"


@pytest.mark.parametrize("name", [*PICTURES, *CLIPS])
def test_damage_is_told_by_a_reason(name: str) -> None:
    opener, data = (open_image, PICTURES[name]) if name in PICTURES else (open_audio, CLIPS[name])
    rng, reasons = random.Random(name), set()
    for _ in range(150):
        reasons.add(survive(opener, damaged(data, rng)))
    assert len(reasons) > 1


@pytest.mark.long
@pytest.mark.parametrize("name", [*PICTURES, *CLIPS])
def test_damage_at_length(name: str) -> None:
    opener, data = (open_image, PICTURES[name]) if name in PICTURES else (open_audio, CLIPS[name])
    for seed in range(20_000):
        survive(opener, damaged(data, random.Random(f"{name}{seed}")))


def test_a_bomb_costs_no_memory() -> None:
    bomb = saved(scene().convert("1").resize((4000, 4000)), "PNG", compress_level=9)
    open_image(PICTURES["png"], LIMITS)
    tracemalloc.start()
    assert survive(open_image, bomb) == "too_many_pixels"
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
