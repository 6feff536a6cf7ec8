"""Pictures hold their code in their colour, in any size and format."""

import io

import numpy as np
import pytest
from PIL import Image

from chaos_mm.core.errors import BadRequest
from chaos_mm.core.rng import Rng
from chaos_mm.load import pictures


def drawn(n: int = 0, code: str = "4072", colour: str = "red", size: tuple[int, int] = (192, 128)) -> Image.Image:
    return pictures.draw(code, colour, size, Rng.derive(5, str(n), "picture", "test"))


def test_the_same_draw_gives_the_same_picture() -> None:
    assert drawn(1).tobytes() == drawn(1).tobytes()
    assert drawn(1).tobytes() != drawn(2).tobytes()


@pytest.mark.parametrize("colour", pictures.COLOURS)
def test_ink_stands_out_and_has_its_colour(colour: str) -> None:
    wanted = np.array(pictures.COLOURS[colour]) * 255
    for n in range(8):
        pixels = np.asarray(drawn(n, colour=colour), float).reshape(-1, 3)
        ground = np.median(pixels, axis=0)
        apart = np.abs(pixels - ground).max(axis=1)
        ink = pixels[apart > 0.8 * apart.max()]
        assert apart.max() > 60
        assert 100 < len(ink) < 0.25 * len(pixels)
        assert np.abs(np.median(ink, axis=0) - wanted).max() < 45


def test_the_code_decides_the_pixels() -> None:
    # Same draws, another code: only the glyphs differ.
    assert np.any(np.asarray(drawn(3, "1111")) != np.asarray(drawn(3, "1711")))


@pytest.mark.parametrize("size", [(32, 32), (192, 128), (640, 64), (64, 640), (1024, 1024)])
def test_any_size_holds_the_whole_code(size: tuple[int, int]) -> None:
    for n in range(4):
        picture = drawn(n, "8888", "black", size)
        assert picture.size == size
        border = np.asarray(picture, float)[:1, :]
        assert np.ptp(border.mean(axis=2)) < 60  # no ink on the edge: nothing is cut off


@pytest.mark.parametrize("file_format", pictures.FORMATS)
def test_files_are_what_they_say(file_format: str) -> None:
    data = pictures.encode(drawn(), file_format)
    again = Image.open(io.BytesIO(data))
    assert again.format == file_format.upper()
    difference = np.abs(np.asarray(again.convert("RGB"), float) - np.asarray(drawn(), float))
    assert difference.mean() < (0.01 if file_format == "png" else 6.0)


def test_sizes_and_formats_are_checked() -> None:
    assert pictures.read_size("640x480") == (640, 480)
    for text in ("640", "640x", "x", "16x640", "5000x64", "-64x64", "6e2x64"):
        with pytest.raises(BadRequest, match="allowed: WIDTHxHEIGHT"):
            pictures.read_size(text)
    with pytest.raises(BadRequest, match="'gif'; allowed: jpeg, png, webp"):
        pictures.encode(drawn(), "gif")
