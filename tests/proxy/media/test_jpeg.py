"""JPEG: tables, subsampling, scan kind and every metadata byte survive; only the picture is another."""

import io

import numpy as np
import pytest
from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.image import open_image
from tests.proxy.media.samples import LIMITS, loaded, noisy, saved, scene

EXIF = PillowImage.Exif()
EXIF[0x0112] = 6
EXIF[0x010E] = "sideways"
RGB = scene().convert("RGB")
TABLES = [[level] * 64 for level in (3, 7, 11)]
KINDS = {
    "plain": (RGB, {}),
    "quality 30": (RGB, {"quality": 30}),
    "quality 100, 4:4:4": (RGB, {"quality": 100, "subsampling": 0}),
    "4:2:2 progressive": (RGB, {"subsampling": 1, "progressive": True, "quality": 85}),
    "orientation, ICC, comment": (
        RGB,
        {"exif": EXIF, "icc_profile": bytes(range(256)) * 500, "comment": b"hello", "dpi": (300, 300)},
    ),
    "grey": (RGB.convert("L"), {"quality": 60}),
    "CMYK": (RGB.convert("CMYK"), {"quality": 85}),
    "stored as RGB": (RGB, {"keep_rgb": True}),
    "three tables": (RGB, {"qtables": TABLES}),
    "one table": (RGB, {"qtables": TABLES[:1]}),
    "optimised": (RGB, {"optimize": True}),
}


def tables(data: bytes) -> list[list[int]]:
    """The quantisation table of each component, as Pillow reads the file."""
    opened = loaded(data)
    return [list(opened.quantization[layer[3]]) for layer in opened.layer]  # type: ignore[attr-defined]


def sampling(data: bytes) -> list[tuple[int, int]]:
    return [layer[1:3] for layer in loaded(data).layer]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", KINDS)
def test_the_files_own_quality_and_metadata_are_kept(name: str) -> None:
    picture, options = KINDS[name]
    data = saved(picture, "JPEG", **options)
    medium = open_image(data, LIMITS)
    encoded = medium.encode(noisy(medium.value))
    assert tables(encoded) == tables(data)
    assert sampling(encoded) == sampling(data)
    before, after = loaded(data), loaded(encoded)
    assert (after.mode, after.size) == (before.mode, before.size)
    assert after.info == before.info
    assert np.abs(np.asarray(after).astype(int) - np.asarray(before)).mean() > 5


def test_exif_and_other_segments_are_the_same_bytes() -> None:
    odd = b"\xff\xe5\x00\x08mystic\xff\xe1\x00\x0bhttp:/xmp"
    data = saved(RGB, "JPEG", exif=EXIF)
    data = data[:2] + odd + data[2:]
    encoded = open_image(data, LIMITS).encode(noisy(open_image(data, LIMITS).value))
    end = data.index(b"\xff\xdb")
    assert encoded[:end] == data[:end]


def test_orientation_is_kept_and_the_pixels_are_not_turned() -> None:
    data = saved(RGB, "JPEG", exif=EXIF)
    medium = open_image(data, LIMITS)
    assert medium.value.pixels.shape == (47, 61, 3)
    encoded = medium.encode(noisy(medium.value))
    assert loaded(encoded).getexif()[0x0112] == 6
    assert loaded(encoded).size == (61, 47)


def test_a_multi_picture_file_becomes_its_first_picture() -> None:
    frames = [RGB, RGB.transpose(PillowImage.Transpose.ROTATE_180)]
    data = saved(frames[0], "MPO", save_all=True, append_images=frames[1:], exif=EXIF)
    assert loaded(data).format == "MPO"
    medium = open_image(data, LIMITS)
    encoded = medium.encode(noisy(medium.value))
    assert loaded(encoded).format == "JPEG"
    assert loaded(encoded).getexif()[0x0112] == 6
    assert b"MPF\0" not in encoded


def test_noise_that_outgrows_a_progressive_buffer_becomes_a_baseline_scan() -> None:
    data = saved(RGB.resize((300, 300)), "JPEG", quality=100, subsampling=0, progressive=True)
    medium = open_image(data, LIMITS)
    pixels = np.random.default_rng(1).integers(0, 256, (300, 300, 3), np.uint8)
    encoded = medium.encode(Image(pixels, "RGB"))
    assert tables(encoded) == tables(data)
    assert "progressive" not in loaded(encoded).info


def test_psnr_is_that_of_the_delivered_picture() -> None:
    data = saved(RGB, "JPEG", quality=75)
    medium = open_image(data, LIMITS)
    value = noisy(medium.value, 0.05)
    encoded = medium.encode(value)
    error = np.asarray(loaded(encoded)).astype(float) - np.asarray(loaded(data))
    by_hand = 10 * np.log10(255**2 / (error**2).mean())
    assert medium.achieved(encoded, value)["psnr_db"] == pytest.approx(by_hand)


def test_another_size_is_written_and_not_measured() -> None:
    medium = open_image(saved(RGB, "JPEG"), LIMITS)
    value = Image(np.ascontiguousarray(medium.value.pixels[:20, :10]), "RGB")
    encoded = medium.encode(value)
    assert loaded(encoded).size == (10, 20)
    assert medium.achieved(encoded, value) == {}


def test_adobe_cmyk_is_seen_as_pillow_sees_it() -> None:
    data = saved(RGB.convert("CMYK"), "JPEG", quality=95)
    medium = open_image(data, LIMITS)
    assert medium.value.mode == "CMYK"
    again = np.asarray(PillowImage.open(io.BytesIO(medium.encode(medium.value)))).astype(int)
    assert np.abs(again - np.asarray(loaded(data))).max() <= 3
