"""Training pictures: a coloured code in one of many fonts, at many sizes, sent through an image codec.

The picture is drawn at its own size and brought to 96x64 by the server's own ``picture_pixels``. Labels for the dense
loss are the digit and the slot that each 8x8 cell of the 96x64 frame shows.
"""

import io
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from chaos_mm.target.front_end import HEIGHT, WIDTH, letterbox, picture_pixels
from training.codes import Code

CELL = 8
PILLOW_FONT = "pillow"
PILLOW_SHARE = 0.3
FONT_FILES = (
    *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-Oblique", "Mono", "Mono-Bold")),
    *("DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "cmr10.ttf", "cmss10.ttf", "cmtt10.ttf", "STIXGeneralBol.ttf"),
)
HELD_OUT_FONTS = ("STIXGeneral.ttf",)
RGB = np.array(
    [
        (0.88, 0.12, 0.12),
        (0.10, 0.65, 0.15),
        (0.15, 0.25, 0.92),
        (0.95, 0.88, 0.10),
        (0.60, 0.15, 0.75),
        (0.97, 0.97, 0.97),
        (0.03, 0.03, 0.03),
    ]
)
LUMINANCE = np.array([0.3, 0.59, 0.11])


class Drawn(NamedTuple):
    """One picture as the model gets it: pixels uint8 (64, 96, 3), colour index, digit and slot labels int64 (96,)."""

    pixels: Any
    colour: int
    digits: Any
    slots: Any


@cache
def font(name: str, size: int) -> Any:
    """A font by file name (matplotlib's) or Pillow's built-in one, at ``size`` pixels."""
    if name == PILLOW_FONT:
        return ImageFont.load_default(size)
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def draw_size(rng: random.Random) -> tuple[int, int]:
    """A picture size: half of them the model's own 96x64, else 128-640 pixels wide in a common aspect."""
    if rng.random() < 0.5:
        return WIDTH, HEIGHT
    width = rng.choice((96, 128, 160, 192, 192, 256, 320, 384, 640))
    aspect = rng.choice((1.5, 1.5, 4 / 3, 4 / 3, 1.0, 16 / 9, 2.0, 3.0))
    return width, max(40, round(width / aspect))


def draw_colours(rng: random.Random) -> tuple[int, Any, Any]:
    """(colour index, text RGB, background RGB): a pale or dark background that the text stands out from."""
    colour = rng.randrange(len(RGB))
    while True:
        level = rng.uniform(0, 0.35) if rng.random() < 0.55 else rng.uniform(0.62, 1.0)
        background = np.clip(level + np.array([rng.uniform(-0.07, 0.07) for _ in range(3)]), 0, 1)
        text = np.clip(RGB[colour] + np.array([rng.uniform(-0.06, 0.06) for _ in range(3)]), 0, 1)
        difference = abs((background - text) @ LUMINANCE)
        if difference > 0.3 or (difference > 0.1 and np.abs(background - text).max() > 0.5):
            return colour, text, background


def _byte(rgb: Any) -> tuple[int, int, int]:
    red, green, blue = (int(255 * min(1.0, max(0.0, float(value)))) for value in rgb)
    return red, green, blue


def draw_background(rng: random.Random, width: int, height: int, background: Any) -> Image.Image:
    """A plain colour, four times in five with a faint gradient and up to two faint rectangles."""
    if rng.random() < 0.2:
        return Image.new("RGB", (width, height), _byte(background))
    across, down = rng.uniform(-0.08, 0.08), rng.uniform(-0.08, 0.08)
    ramp = across * (np.arange(width) / width - 0.5)[None] + down * (np.arange(height) / height - 0.5)[:, None]
    picture = Image.fromarray((np.clip(background + ramp[..., None], 0, 1) * 255).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    for _ in range(rng.randrange(3)):
        x, y = rng.randrange(width), rng.randrange(height)
        corner = x + rng.randrange(width // 20, width // 2), y + rng.randrange(height // 20, height // 2)
        pen.rectangle((x, y, *corner), fill=_byte(background + np.array([rng.uniform(-0.06, 0.06) for _ in range(3)])))
    return picture


def choose_font(rng: random.Random, names: tuple[str, ...] | None) -> str:
    """One of ``names``; without names Pillow's font three times in ten, else one of the files."""
    if names:
        return rng.choice(names)
    return PILLOW_FONT if rng.random() < PILLOW_SHARE else rng.choice(FONT_FILES)


def fit_font(rng: random.Random, name: str, code: Code, width: int, scale: float) -> tuple[Any, list[float]]:
    """A font of 19-29 pixels in the 96x64 frame, smaller where four digits would not fit, and each digit's advance."""
    spacing = rng.uniform(0, 2.5) / scale
    for size in range(rng.randrange(19, 30), 9, -1):
        chosen = font(name, max(8, round(size / scale)))
        advances = [chosen.getlength(str(digit)) + spacing for digit in code]
        if sum(advances) < width - 4 / scale:
            break
    return chosen, advances


def encode(rng: random.Random, picture: Image.Image) -> Image.Image:
    """As it arrives: 30 % JPEG and 15 % WebP of quality 30-95 (larger pictures 60 % and 20 %), else lossless."""
    small = picture.size == (WIDTH, HEIGHT)
    draw, quality = rng.random(), rng.randint(30, 95)
    if draw >= (0.45 if small else 0.8):
        return picture
    stream = io.BytesIO()
    picture.save(stream, "JPEG" if draw < (0.3 if small else 0.6) else "WEBP", quality=quality)
    return Image.open(stream)


def draw_picture(
    rng: random.Random, code: Code, fonts: tuple[str, ...] | None = None, size: tuple[int, int] | None = None
) -> Drawn:
    """Draw ``code`` somewhere in a picture of a random (or the given) size and bring it to the model's frame."""
    width, height = size or draw_size(rng)
    scale, _, _, left, top = letterbox(width, height)
    colour, text, background = draw_colours(rng)
    picture = draw_background(rng, width, height, background)
    pen = ImageDraw.Draw(picture)
    chosen, advances = fit_font(rng, choose_font(rng, fonts), code, width, scale)
    box = chosen.getbbox("0123456789")
    tall = box[3] - box[1]
    x = rng.uniform(2 / scale, max(2 / scale, width - 2 / scale - sum(advances)))
    y = float(rng.randint(min(2, max(0, height - tall)), max(3, height - round(2 / scale) - tall)))  # whole: see below
    digits, slots = (
        np.zeros((HEIGHT // CELL, WIDTH // CELL), np.int64),
        np.zeros((HEIGHT // CELL, WIDTH // CELL), np.int64),
    )
    middle_x, middle_y = (np.arange(count) * CELL + CELL / 2 for count in (WIDTH // CELL, HEIGHT // CELL))
    inside = (middle_y > y * scale + top - 2) & (middle_y < (y + tall) * scale + top + 2)
    for slot, (digit, advance) in enumerate(zip(code, advances, strict=True)):
        pen.text((x, y - box[1]), str(digit), font=chosen, fill=_byte(text))  # a fractional y clips glyph tops
        start, end = x * scale + left - 0.5, (x + advance) * scale + left - 0.5
        cells = inside[:, None] & ((middle_x >= start) & (middle_x < end))[None]
        digits[cells], slots[cells] = digit + 1, slot + 1
        x += advance
    return Drawn(picture_pixels(encode(rng, picture)), colour, digits.ravel(), slots.ravel())
