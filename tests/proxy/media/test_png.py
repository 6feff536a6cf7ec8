"""PNG: colour type, depth, palette, interlacing and chunks survive, read back by a decoder that is not our writer."""

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.image import open_image
from chaos_mm.proxy.media.png import Header, zlib_stream
from chaos_mm.proxy.policy import Undecodable
from tests.proxy.media.samples import LIMITS, loaded, noisy, saved, scene

RGBA = scene()
RGB, GREY = RGBA.convert("RGB"), RGBA.convert("L")
RNG = np.random.default_rng(5)


def by_hand(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: bytes, adam7: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, adam7)
    parts = (chunk(b"IHDR", header), *chunks, chunk(b"IDAT", rows), chunk(b"tEXt", b"After\0idat"), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def sixteen(colour: int, channels: int) -> bytes:
    values = np.repeat(RNG.integers(0, 256, (9, 7 * channels), np.uint8)[:, :, None], 2, 2).reshape(9, -1)
    return by_hand(7, 9, 16, colour, zlib.compress(b"".join(b"\0" + row.tobytes() for row in values)))


def grey_bits(depth: int) -> bytes:
    rows = b"".join(b"\0" + RNG.bytes((33 * depth + 7) // 8) for _ in range(17))
    return by_hand(33, 17, depth, 0, zlib.compress(rows))


KINDS: dict[str, Callable[[], bytes]] = {
    "RGB": lambda: saved(RGB, "PNG"),
    "RGBA": lambda: saved(RGBA, "PNG"),
    "grey": lambda: saved(GREY, "PNG"),
    "grey with alpha": lambda: saved(RGBA.convert("LA"), "PNG"),
    "one bit": lambda: saved(GREY.convert("1"), "PNG"),
    "two bits": lambda: grey_bits(2),
    "four bits": lambda: grey_bits(4),
    "sixteen grey": lambda: saved(PillowImage.fromarray(RNG.integers(0, 65536, (9, 7), np.uint16)), "PNG"),
    "sixteen RGB": lambda: sixteen(2, 3),
    "sixteen RGBA": lambda: sixteen(6, 4),
    "palette of 200": lambda: saved(RGB.quantize(200), "PNG"),
    "palette of 5 (four bits)": lambda: saved(RGB.quantize(5), "PNG"),
    "palette of 2 (one bit)": lambda: saved(RGB.quantize(2), "PNG"),
    "palette with alpha": lambda: saved(RGB.quantize(16), "PNG", transparency=bytes([0, 128] + [255] * 14)),
    "palette with a clear entry": lambda: saved(RGB.quantize(16), "PNG", transparency=3),
    "clear colour": lambda: saved(RGB, "PNG", transparency=(0, 0, 128)),
    "ICC and dpi": lambda: saved(RGB, "PNG", icc_profile=b"profile" * 99, dpi=(72, 72)),
}


@pytest.mark.parametrize("name", KINDS)
def test_unchanged_pixels_come_back_in_the_same_type(name: str) -> None:
    data = KINDS[name]()
    medium = open_image(data, LIMITS)
    encoded = medium.encode(medium.value)
    assert encoded[:33] == data[:33]  # signature and IHDR
    before, after = loaded(data), loaded(encoded)
    assert (after.mode, after.info) == (before.mode, before.info)
    assert np.array_equal(np.asarray(after), np.asarray(before))
    assert medium.achieved(encoded, medium.value) == {"psnr_db": 120.0}


@pytest.mark.parametrize("name", KINDS)
def test_noise_is_delivered_as_far_as_the_type_can_hold_it(name: str) -> None:
    data = KINDS[name]()
    medium = open_image(data, LIMITS)
    value = noisy(medium.value, 0.2)
    encoded = medium.encode(value)
    assert encoded[:33] == data[:33]
    assert loaded(encoded).mode == loaded(data).mode
    told = medium.delivered(encoded, value)
    assert np.array_equal(open_image(encoded, LIMITS).value.pixels, told.pixels)
    assert medium.damage(told)["psnr_db"] < 30
    if medium.value.has_alpha:
        assert np.array_equal(told.pixels[..., -1], medium.value.pixels[..., -1])


def test_sixteen_bits_reach_the_fault_where_pillow_has_them() -> None:
    medium = open_image(KINDS["sixteen grey"](), LIMITS)
    assert (medium.value.mode, medium.value.pixels.dtype) == ("I;16", np.uint16)


def test_the_colour_that_means_clear_stays_clear() -> None:
    data = saved(RGB, "PNG", transparency=RGB.getpixel((0, 0)))
    medium = open_image(data, LIMITS)
    clear = np.asarray(loaded(data).convert("RGBA"))[..., 3] == 0
    encoded = medium.encode(noisy(medium.value, 0.2))
    assert clear.any()
    assert (np.asarray(loaded(encoded).convert("RGBA"))[..., 3][clear] == 0).all()


def test_chunks_are_kept_in_place_unless_they_are_unsafe_and_unknown() -> None:
    text, private = chunk(b"tEXt", b"Title\0x"), chunk(b"ruIt", b"safe to copy")
    unsafe = chunk(b"ruIT", b"depends on the pixels")
    rows = zlib.compress(b"".join(b"\0" + bytes(9) for _ in range(3)))
    data = by_hand(3, 3, 8, 2, rows, text, private, unsafe)
    encoded = open_image(data, LIMITS).encode(open_image(data, LIMITS).value)
    assert encoded.startswith(data[:33] + text + private)
    assert b"ruIT" not in encoded
    assert encoded.endswith(chunk(b"tEXt", b"After\0idat") + chunk(b"IEND", b""))


def test_a_lost_end_is_no_loss() -> None:
    data = saved(RGB, "PNG")[:-12]
    assert np.array_equal(open_image(data, LIMITS).value.pixels, np.asarray(RGB))


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([(1, 0, 1), (2, 0, 1), (4, 0, 1), (8, 0, 1), (8, 2, 3), (8, 4, 2), (8, 6, 4), (16, 2, 3)]),
    st.booleans(),
    st.booleans(),
)
def test_pillow_reads_what_the_writer_writes(
    width: int, height: int, kind: tuple[int, int, int], adam7: bool, flat: bool
) -> None:
    depth, colour, channels = kind
    top = 1 if flat else min(255, (1 << depth) - 1)
    samples = np.random.default_rng(width * 41 + height).integers(0, top + 1, (height, width, channels), np.uint8)
    rows = zlib_stream(Header(width, height, depth, colour, adam7), samples)
    shown = np.asarray(loaded(by_hand(width, height, depth, colour, rows, adam7=int(adam7))).convert(None))
    scale = 255 // ((1 << depth) - 1) if depth < 8 else 1
    assert np.array_equal(
        shown.reshape(samples.shape).astype(int) * (255 if shown.dtype == bool else 1), samples * scale
    )


def test_noise_is_stored_and_flat_areas_are_deflated() -> None:
    medium = open_image(saved(RGB.resize((512, 512)), "PNG"), LIMITS)
    raw = 512 * (512 * 3 + 1)
    random = Image(RNG.integers(0, 256, (512, 512, 3), np.uint8), "RGB")
    assert raw < len(medium.encode(random)) < raw + 500
    assert len(medium.encode(medium.value)) < raw / 3


@pytest.mark.parametrize(
    "value",
    [
        Image(np.zeros((4, 4, 3), np.uint8), "CMYK"),
        Image(np.zeros((4, 4, 4), np.uint8), "RGB"),
        Image(np.zeros((4, 4, 3), np.float32), "RGB"),
        Image(np.zeros((0, 4, 3), np.uint8), "RGB"),
        Image(np.zeros((4, 4), np.uint8), "RGB"),
    ],
)
def test_what_a_fault_must_not_return(value: Image) -> None:
    with pytest.raises(Undecodable) as caught:
        open_image(saved(RGB, "PNG"), LIMITS).encode(value)
    assert caught.value.reason == "not_encodable"
