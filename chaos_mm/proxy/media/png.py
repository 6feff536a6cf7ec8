"""PNG: other pixels in the source's file, with its colour type, bit depth, palette, interlacing and chunks (ISO 15948).

Pillow decodes; the writer is our own, because filtering and deflating noise costs 25 to 100 times what storing it does
and saves a fifth of the bytes. All ancillary chunks are copied but unknown ones that declare themselves unsafe to copy.
Sixteen-bit colour reaches a fault as eight bits (Pillow's limit) and is written as sixteen again; palette pictures are
shown to a fault as RGB or RGBA and mapped back to the nearest entry; fewer than eight grey bits likewise.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.medium import Picture
from chaos_mm.proxy.media.palette import Palette
from chaos_mm.proxy.media.pixels import from_pillow
from chaos_mm.proxy.policy import Undecodable

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PALETTE_COLOUR = 3
# First row and column, then row and column step of the seven Adam7 passes.
_ADAM7: Final = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_WORTH_DEFLATING = 0.7
_SAMPLED_BYTES = 32 * 1024


class Header(NamedTuple):
    """IHDR: size in pixels, bits a sample, colour type, whether Adam7."""

    width: int
    height: int
    depth: int
    colour: int
    interlaced: bool


class Png(Picture):
    """A PNG opened by Pillow, its header only; pixels are decoded here."""

    def __init__(self, data: bytes, opened: PillowImage.Image) -> None:
        chunks = list(_chunks(data))
        if any(kind == b"acTL" for kind, _ in chunks):
            raise Undecodable("animated")
        self._header = _header(chunks)
        split = next(index for index, (kind, _) in enumerate(chunks) if kind == b"IDAT")
        self._before = [raw for kind, raw in chunks[1:split] if _is_kept(kind)]
        self._after = [raw for kind, raw in chunks[split:] if _is_kept(kind)]
        self._palette = Palette(opened) if self._header.colour == _PALETTE_COLOUR else None
        self._key = opened.info.get("transparency") if self._header.colour in (0, 2) else None
        super().__init__(self._palette.shown if self._palette else from_pillow(_plain(opened)))

    def written(self, value: Image) -> bytes:
        """Write other pixels of any size in the source's format."""
        width, height = value.pixels.shape[1], value.pixels.shape[0]
        header = self._header._replace(width=width, height=height)
        image = zlib_stream(header, self._samples(value))
        end = _chunk(b"IEND", b"")
        return b"".join((SIGNATURE, _ihdr(header), *self._before, _chunk(b"IDAT", image), *self._after, end))

    def delivered(self, encoded: bytes, value: Image) -> Image:
        """What the stored samples show: palettes and few grey bits round what the fault returned."""
        if self._palette is not None:
            return self._palette.show(self._palette.indices(value))
        if self._header.depth < 8:
            samples = _grey_samples(value.pixels, self._header.depth)
            return Image((samples * (255 // ((1 << self._header.depth) - 1))).astype(np.uint8), "L")
        return Image(self._samples(value), value.mode)

    def _samples(self, value: Image) -> Any:
        """(height, width, channels) of the file's own sample values."""
        if self._palette is not None:
            return self._palette.indices(value)
        if self._header.depth < 8:
            return _grey_samples(value.pixels, self._header.depth)
        if self._key is not None and value.pixels.shape == self.value.pixels.shape:
            return self._keyed(value.pixels)
        return value.pixels

    def _keyed(self, pixels: Any) -> Any:
        """tRNS of a grey or RGB picture names one colour as transparent: those pixels stay exactly that colour."""
        key = np.asarray(self._key)
        if self._header.depth == 16 and pixels.dtype == np.uint8:
            key = key >> 8
        clear = np.all(self.value.pixels == key, axis=2, keepdims=True)
        return np.where(clear, self.value.pixels, pixels)


def zlib_stream(header: Header, samples: Any) -> bytes:
    """The zlib datastream of IDAT for samples (height, width, channels): stored, or level 1 where that pays."""
    raw = b"".join(_filtered(rows, 0) for rows in _passes(header, samples))
    sub = samples.shape[2] * max(1, header.depth // 8) if header.depth >= 8 and header.colour != _PALETTE_COLOUR else 0
    middle = max(0, len(raw) // 2 - _SAMPLED_BYTES // 2)
    sample = raw[middle : middle + _SAMPLED_BYTES]
    if len(zlib.compress(_sub_bytes(sample, sub), 1)) > _WORTH_DEFLATING * len(sample):
        return zlib.compress(raw, 0)
    return zlib.compress(b"".join(_filtered(rows, sub) for rows in _passes(header, samples)), 1)


def _passes(header: Header, samples: Any) -> Iterator[Any]:
    """Packed rows (rows, bytes) uint8 of each pass; the only one when the picture is not interlaced."""
    steps = _ADAM7 if header.interlaced else ((0, 0, 1, 1),)
    for top, left, down, right in steps:
        part = samples[top::down, left::right]
        if part.size:
            yield _packed(part.reshape(part.shape[0], -1), header.depth)


def _packed(rows: Any, depth: int) -> Any:
    if depth == 16:
        wide = rows if rows.dtype == np.uint16 else rows.astype(np.uint16) * 257
        return wide.astype(">u2").view(np.uint8)
    if depth == 8:
        return np.ascontiguousarray(rows)
    each = 8 // depth
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % each))).reshape(len(rows), -1, each)
    shifts = np.arange(each - 1, -1, -1, dtype=np.uint8) * depth
    return np.bitwise_or.reduce(padded << shifts, axis=2).astype(np.uint8)


def _filtered(rows: Any, sub: int) -> bytes:
    """Rows with their filter byte: none, or Sub over `sub` bytes a pixel."""
    out = np.empty((rows.shape[0], rows.shape[1] + 1), np.uint8)
    out[:, 0] = 1 if sub else 0
    out[:, 1:] = rows
    if sub:
        out[:, 1 + sub :] -= rows[:, :-sub]
    return out.tobytes()


def _sub_bytes(sample: bytes, sub: int) -> bytes:
    data = np.frombuffer(sample, np.uint8)
    return (data[sub:] - data[:-sub]).tobytes() if sub else sample


def _grey_samples(pixels: Any, depth: int) -> Any:
    top = (1 << depth) - 1
    return ((pixels.astype(np.uint16) * top + 127) // 255).astype(np.uint8)


def _plain(opened: PillowImage.Image) -> PillowImage.Image:
    return opened.convert("L") if opened.mode == "1" else opened


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(type, whole chunk with length and checksum) as far as they are whole."""
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            return
        yield data[at + 4 : at + 8], data[at:end]
        at = end


def _header(chunks: list[tuple[bytes, bytes]]) -> Header:
    raw = chunks[0][1][8:21]
    width, height = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
    return Header(width, height, raw[8], raw[9], bool(raw[12]))


def _ihdr(header: Header) -> bytes:
    size = header.width.to_bytes(4, "big") + header.height.to_bytes(4, "big")
    return _chunk(b"IHDR", size + bytes((header.depth, header.colour, 0, 0, header.interlaced)))


def _is_kept(kind: bytes) -> bool:
    """Whether to copy a chunk: a fourth letter in upper case means unsafe when unknown (ISO 15948 §5.4)."""
    if kind in (b"IHDR", b"IDAT", b"IEND"):
        return False
    return kind == b"PLTE" or kind in _KNOWN or bool(kind[3] & 0x20)


_KNOWN: Final = frozenset(b"tRNS cHRM gAMA iCCP sBIT sRGB cICP mDCV cLLI bKGD hIST tIME eXIf".split())


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(body, zlib.crc32(kind)).to_bytes(4, "big")
