"""WebP: kind, quality, alpha and metadata survive."""

import numpy as np
import pytest
from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.image import open_image
from chaos_mm.proxy.media.webp import lossy_quality, quantiser_indices
from tests.proxy.media.samples import LIMITS, loaded, noisy, saved, scene

RGBA = scene(200, 150)
RGB = RGBA.convert("RGB")
EXIF = PillowImage.Exif()
EXIF[0x0112] = 8


def frame(data: bytes) -> bytes:
    """The VP8 chunk's payload."""
    at = data.index(b"VP8 ")
    return data[at + 8 : at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")]


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_lossless_stays_lossless_to_the_last_pixel(mode: str) -> None:
    data = saved(RGBA.convert(mode), "WEBP", lossless=True, exact=True)
    medium = open_image(data, LIMITS)
    value = noisy(medium.value)
    encoded = medium.encode(value)
    assert b"VP8L" in encoded
    assert np.array_equal(np.asarray(loaded(encoded)), value.pixels)
    assert medium.delivered(encoded, value) is value


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_lossy_stays_lossy_and_alpha_is_kept(mode: str) -> None:
    data = saved(RGBA.convert(mode), "WEBP", quality=80)
    medium = open_image(data, LIMITS)
    value = noisy(medium.value)
    encoded = medium.encode(value)
    assert b"VP8 " in encoded
    assert loaded(encoded).mode == mode
    told = medium.delivered(encoded, value).pixels
    assert np.array_equal(np.asarray(loaded(encoded)), told)
    if mode == "RGBA":
        assert np.array_equal(told[..., 3], medium.value.pixels[..., 3])


def test_a_picture_that_became_opaque_is_measured_all_the_same() -> None:
    medium = open_image(saved(RGBA, "WEBP", quality=80), LIMITS)
    value = Image(medium.value.pixels.copy(), "RGBA")
    value.pixels[..., 3] = 255
    assert medium.delivered(medium.encode(value), value).pixels.shape == value.pixels.shape


def test_metadata_is_the_same_bytes() -> None:
    data = saved(RGB, "WEBP", exif=EXIF, icc_profile=b"profile" * 9, xmp=b"<x/>")
    medium = open_image(data, LIMITS)
    before, after = loaded(data).info, loaded(medium.encode(noisy(medium.value))).info
    for name in ("exif", "icc_profile", "xmp"):
        assert after[name] == before[name]


def test_no_metadata_is_added() -> None:
    medium = open_image(saved(RGB, "WEBP"), LIMITS)
    assert loaded(medium.encode(medium.value)).info.keys() <= {"background", "loop", "timestamp", "duration"}


@pytest.mark.parametrize("quality", [5, 10, 25, 40, 50, 60, 75, 80, 85, 90, 95, 100])
@pytest.mark.parametrize("method", [0, 4, 6])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_quality_is_read_from_the_quantiser(quality: int, method: int, noise: float) -> None:
    pixels = noisy(Image(np.asarray(RGB), "RGB"), noise).pixels if noise else np.asarray(RGB)
    data = saved(PillowImage.fromarray(pixels), "WEBP", quality=quality, method=method)
    assert abs(lossy_quality(frame(data)) - quality) <= 12


def test_the_indices_fall_as_quality_rises() -> None:
    means = [np.mean(quantiser_indices(frame(saved(RGB, "WEBP", quality=q)))) for q in range(0, 101, 10)]
    assert means == sorted(means, reverse=True)
    assert means[-1] == 0


def test_the_size_of_the_file_stays_near() -> None:
    for quality in (30, 60, 80, 95):
        data = saved(RGB, "WEBP", quality=quality)
        medium = open_image(data, LIMITS)
        assert len(medium.encode(medium.value)) == pytest.approx(len(data), rel=0.35)
