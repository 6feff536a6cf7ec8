"""Pictures with a code in them: Pillow's built-in font, a random colour, place, size and background."""

import io
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

from chaos_mm.core.errors import BadRequest
from chaos_mm.core.rng import Rng

FORMATS = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp"}
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.88, 0.12, 0.12),
    "green": (0.10, 0.65, 0.15),
    "blue": (0.15, 0.25, 0.92),
    "yellow": (0.95, 0.88, 0.10),
    "purple": (0.60, 0.15, 0.75),
    "white": (0.97, 0.97, 0.97),
    "black": (0.03, 0.03, 0.03),
}
MIN_SIZE, MAX_SIZE = 32, 4096
_LUMA = (0.30, 0.59, 0.11)
Colour = tuple[float, float, float]


def draw(code: str, colour: str, size: tuple[int, int], rng: Rng) -> Image.Image:
    """An RGB picture of ``size`` (width, height) with ``code`` written in one of COLOURS on a contrasting ground."""
    ink = _shifted(COLOURS[colour], 0.05, rng)
    ground = _ground(ink, rng)
    picture = Image.new("RGB", size, _rgb(ground))
    pen = ImageDraw.Draw(picture)
    _clutter(pen, size, ground, rng)
    font = _fitting(code, size, rng.uniform(0.34, 0.45))
    left, top, right, bottom = font.getbbox(code)
    x = rng.integer(2, max(3, int(size[0] - 2 - (right - left))))
    y = rng.integer(2, max(3, int(size[1] - 2 - (bottom - top))))
    pen.text((x - left, y - top), code, font=font, fill=_rgb(ink))  # whole pixels: fractions clip glyph tops
    return picture


def encode(picture: Image.Image, file_format: str, quality: int = 90) -> bytes:
    """The picture as a JPEG, PNG or WebP file; ``quality`` (1–100) is for JPEG and WebP. Raises BadRequest else."""
    if file_format not in FORMATS:
        raise BadRequest(f"picture format is {file_format!r}; allowed: {', '.join(FORMATS)}")
    out = io.BytesIO()
    picture.save(out, file_format.upper(), **({} if file_format == "png" else {"quality": quality}))
    return out.getvalue()


def read_size(text: str) -> tuple[int, int]:
    """ "192x128" as (width, height). Raises BadRequest outside 32–4096 a side."""
    width, _, height = text.lower().partition("x")
    if width.isdecimal() and height.isdecimal() and all(MIN_SIZE <= int(n) <= MAX_SIZE for n in (width, height)):
        return int(width), int(height)
    raise BadRequest(f"picture size is {text!r}; allowed: WIDTHxHEIGHT, each {MIN_SIZE}–{MAX_SIZE}")


def _ground(ink: Colour, rng: Rng) -> Colour:
    """A pale or dark grey with a tint, clearly apart from the ink in brightness, or else in one channel."""
    while True:
        base = rng.uniform(0.0, 0.35) if rng.random() < 0.55 else rng.uniform(0.62, 1.0)
        ground = _shifted((base, base, base), 0.07, rng)
        luma = abs(sum(weight * (a - b) for weight, a, b in zip(_LUMA, ink, ground, strict=True)))
        channel = max(abs(a - b) for a, b in zip(ink, ground, strict=True))
        if luma > 0.3 or (luma > 0.1 and channel > 0.5):
            return ground


def _clutter(pen: ImageDraw.ImageDraw, size: tuple[int, int], ground: Colour, rng: Rng) -> None:
    width, height = size
    for _ in range(rng.integer(0, 3)):
        x, y = rng.integer(0, width), rng.integer(0, height)
        corner = (x + rng.integer(width // 20 + 1, width // 2 + 2), y + rng.integer(height // 20 + 1, height // 2 + 2))
        pen.rectangle((x, y, *corner), fill=_rgb(_shifted(ground, 0.06, rng)))


def _fitting(code: str, size: tuple[int, int], share: float) -> ImageFont.FreeTypeFont:
    """The built-in font at ``share`` of the height, smaller where the code would not fit the width."""
    points = max(8, int(share * size[1]))
    while points > 8 and _font(points).getlength(code) > size[0] - 6:
        points -= 1
    return _font(points)


@lru_cache(maxsize=512)
def _font(points: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(points)
    if not isinstance(font, ImageFont.FreeTypeFont):  # a Pillow built without FreeType has one tiny bitmap font only
        raise BadRequest("this Pillow has no FreeType; install a Pillow that has, its wheels do")
    return font


def _shifted(colour: Colour, by: float, rng: Rng) -> Colour:
    r, g, b = (min(1.0, max(0.0, value + rng.uniform(-by, by))) for value in colour)
    return r, g, b


def _rgb(colour: Colour) -> tuple[int, int, int]:
    r, g, b = (round(255 * value) for value in colour)
    return r, g, b
