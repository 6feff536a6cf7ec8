"""Palette pictures: shown to faults in full colour, mapped back to the palette they came with."""

from typing import Any

import numpy as np
from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.pixels import from_pillow, to_pillow


class Palette:
    """A P picture: `shown` as RGB, or RGBA where an entry is transparent."""

    def __init__(self, opened: PillowImage.Image) -> None:
        mode = "RGBA" if "transparency" in opened.info else "RGB"
        indices = np.asarray(opened)
        self._indices = indices.reshape(*indices.shape, 1)
        size = max(int(indices.max()) + 1, _entries(opened))
        strip = PillowImage.frombytes("P", (size, 1), bytes(range(size)))
        strip.putpalette(opened.getpalette() or [])
        strip.info = {key: value for key, value in opened.info.items() if key == "transparency"}
        self._table = from_pillow(strip.convert(mode)).pixels[0]
        self.shown = self._in_mode(self._indices)

    def show(self, indices: Any) -> Image:
        """The picture that indices (height, width, 1) stand for."""
        return self._in_mode(indices)

    def indices(self, value: Image) -> Any:
        """Nearest entries (height, width, 1) uint8 in RGB; alpha picks among entries of the same transparency.

        A pixel that the fault left alone keeps its index, since two entries may have one colour.
        """
        found = self._nearest(value)
        if value.pixels.shape != self.shown.pixels.shape:
            return found
        same = np.all(value.pixels == self.shown.pixels, axis=2, keepdims=True)
        return np.where(same, self._indices, found)

    def _in_mode(self, indices: Any) -> Image:
        mode = "RGBA" if self._table.shape[1] == 4 else "RGB"
        return Image(np.ascontiguousarray(self._table[indices[:, :, 0]]), mode)

    def _nearest(self, value: Image) -> Any:
        if value.mode == "RGB":
            return _quantised(value.pixels, self._table, np.arange(len(self._table)))
        alpha = value.pixels[:, :, 3:]
        levels = np.unique(self._table[:, 3])
        wanted = levels[np.abs(levels[None].astype(np.int16) - np.arange(256)[:, None]).argmin(1)][alpha]
        found = np.zeros_like(alpha)
        for level in levels:
            (entries,) = np.nonzero(self._table[:, 3] == level)
            nearest = _quantised(value.pixels[:, :, :3], self._table[entries, :3], entries)
            found = np.where(wanted == level, nearest, found)
        return found


def _entries(opened: PillowImage.Image) -> int:
    return min(256, max(1, len(opened.getpalette() or []) // 3))


def _quantised(pixels: Any, colours: Any, entries: Any) -> Any:
    """Index of the nearest of `colours` (n, 3), by Pillow's cached search, in terms of `entries`."""
    palette = PillowImage.new("P", (1, 1))
    # Pillow pads a short palette with black, which would attract dark pixels: repeat the last colour instead.
    padded = np.concatenate([colours, np.repeat(colours[-1:], 256 - len(colours), axis=0)])
    palette.putpalette(padded.astype(np.uint8).tobytes())
    picture = to_pillow(Image(np.ascontiguousarray(pixels), "RGB"))
    near = np.asarray(picture.quantize(palette=palette, dither=PillowImage.Dither.NONE))
    table = np.concatenate([entries, np.repeat(entries[-1:], 256 - len(entries))]).astype(np.uint8)
    return table[near][:, :, None]
