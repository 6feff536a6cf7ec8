"""Between Pillow's pictures and the arrays that faults take."""

from typing import Any, Final

import numpy as np
from PIL import Image as PillowImage
from PIL import _imaging as core

from chaos_mm.core.media import Image

_CHANNELS: Final = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I;16": 1}


def from_pillow(picture: PillowImage.Image) -> Image:
    """Decode: pixels (height, width, channels) uint8, or uint16 for I;16. Raises KeyError for another mode."""
    channels = _CHANNELS[picture.mode]
    pixels = np.asarray(picture)
    return Image(np.ascontiguousarray(pixels.reshape(picture.height, picture.width, channels)), picture.mode)


def to_pillow(image: Image) -> PillowImage.Image:
    """A Pillow picture over a copy-free view of the pixels."""
    height, width = image.pixels.shape[:2]
    pixels: Any = np.ascontiguousarray(image.pixels)
    return PillowImage.frombuffer(image.mode, (width, height), pixels, "raw", image.mode, 0, 1)


def keep_blocks(count: int = 16) -> None:
    """Let Pillow keep `count` freed 16 MiB blocks: page faults of fresh ones cost more than a JPEG decode does."""
    core.set_blocks_max(count)
