"""JPEG: another picture in the source's file, with its quantisation tables, subsampling, scan kind and segments.

The source's APPn and COM segments (EXIF with orientation, ICC, XMP, Adobe, comments) are copied byte for byte around
a fresh scan, so that nothing is rewritten by a metadata library. Not kept: Huffman tables and restart intervals
(lossless choices of the encoder), the further pictures of a multi-picture file and their index, YCCK (written as CMYK),
subsamplings other than 4:4:4, 4:2:2, 4:2:0 (written as 4:4:4, which loses nothing); and a progressive scan so noisy
that Pillow cannot buffer it becomes a baseline one.
"""

import io
from collections.abc import Iterator
from typing import Any, Final

from PIL import Image as PillowImage
from PIL import JpegImagePlugin

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.medium import Picture
from chaos_mm.proxy.media.pixels import from_pillow, to_pillow
from chaos_mm.proxy.policy import Undecodable

MAX_SCANS: Final = 100  # a progressive file with thousands of scans costs minutes to decode
_ADOBE, _COMMENT = 0xEE, 0xFE
_START_OF_SCAN = 0xDA


class Jpeg(Picture):
    """A JPEG opened by Pillow, its header only; pixels are decoded here."""

    def __init__(self, data: bytes, opened: PillowImage.Image) -> None:
        layers = _components(opened)
        self._options: dict[str, Any] = {
            "qtables": _tables(opened, layers),
            "subsampling": max(0, JpegImagePlugin.get_sampling(opened)),
            "progressive": bool(opened.info.get("progressive", False)),
            # Adobe's transform 0 with three components: RGB stored as it is, not as YCbCr.
            "keep_rgb": opened.info.get("adobe_transform") == 0 and opened.mode == "RGB",
        }
        self._segments = [segment for segment in _segments(data) if _is_kept(segment)]
        super().__init__(from_pillow(opened))

    def written(self, value: Image) -> bytes:
        """Compress with the source's tables and put the source's segments back."""
        try:
            return self._dressed(_compressed(value, self._options))
        except OSError:
            # Pillow buffers a progressive scan whole and guesses its size; near-lossless noise outgrows the guess.
            return self._dressed(_compressed(value, {**self._options, "progressive": False}))

    def delivered(self, encoded: bytes, value: Image) -> Image:
        """Decode it again: the scan is lossy."""
        return from_pillow(PillowImage.open(io.BytesIO(encoded), formats=("JPEG",)))

    def _dressed(self, encoded: bytes) -> bytes:
        fresh = list(_segments(encoded))
        body = encoded[2 + sum(map(len, fresh)) :]
        adobe = [segment for segment in fresh if segment[1] == _ADOBE]
        kept = [segment for segment in self._segments if not (adobe and segment[1] == _ADOBE)]
        coding = [segment for segment in fresh if not _is_application(segment[1])]
        return b"".join((encoded[:2], *kept, *adobe, *coding, body))


def _compressed(value: Image, options: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    to_pillow(value).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def _components(opened: PillowImage.Image) -> list[tuple[int, int, int, int]]:
    layers: list[tuple[int, int, int, int]] = getattr(opened, "layer", [])
    return layers


def _tables(opened: PillowImage.Image, layers: list[tuple[int, int, int, int]]) -> list[list[int]]:
    """One table a component, in natural order; the encoder uses the last for all that follow."""
    tables: dict[int, list[int]] = getattr(opened, "quantization", {})
    used = [list(tables[layer[3]]) for layer in layers]
    while len(used) > 1 and used[-1] == used[-2]:
        used.pop()
    return used


def _segments(data: bytes) -> Iterator[bytes]:
    """Every marker segment between SOI and the first scan, marker included, fill bytes dropped.

    Raises Undecodable when they do not chain up to a scan: Pillow reads over garbage that other decoders stop at.
    """
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == _START_OF_SCAN:
            return
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        yield data[at:end]
        at = end
    raise Undecodable("broken_media")


def _is_application(marker: int) -> bool:
    return 0xE0 <= marker <= 0xEF or marker == _COMMENT


def _is_kept(segment: bytes) -> bool:
    return _is_application(segment[1]) and segment[4:8] != b"MPF\0"
