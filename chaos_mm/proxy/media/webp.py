"""WebP: another picture in the source's kind: lossless, or lossy at the quality its quantiser speaks of (RFC 9649).

EXIF, ICC and XMP chunks are kept byte for byte. The lossy encoder leaves no quality figure in the file, only quantiser
indices; libwebp's mapping from quality to index is inverted. That gives the original quality for most pictures, and
comes within about ten points for flat or noisy ones, whose index libwebp shifts.
"""

import io
import math
from collections.abc import Iterator
from typing import Any, Final

from PIL import Image as PillowImage

from chaos_mm.core.media import Image
from chaos_mm.proxy.media.medium import Picture
from chaos_mm.proxy.media.pixels import from_pillow, to_pillow

_LOSSLESS_EFFORT: Final = 20
_METHOD: Final = 1  # libwebp's default of 4 takes three times as long for a few per cent of the bytes
_METADATA: Final = {b"EXIF": "exif", b"ICCP": "icc_profile", b"XMP ": "xmp"}


class Webp(Picture):
    """A still WebP opened by Pillow, its header only; pixels are decoded here."""

    def __init__(self, data: bytes, opened: PillowImage.Image) -> None:
        chunks = dict(_chunks(data))
        self._lossless = b"VP8L" in chunks
        quality = _LOSSLESS_EFFORT if self._lossless else lossy_quality(chunks[b"VP8 "])
        self._options: dict[str, Any] = {"lossless": self._lossless, "quality": quality, "method": _METHOD}
        # Without `exact` the encoder may rewrite colours under full transparency, which some models see.
        self._options |= {"exact": True, "exif": b"", "icc_profile": b"", "xmp": b""}
        self._options |= {_METADATA[name]: body for name, body in chunks.items() if name in _METADATA}
        super().__init__(from_pillow(opened))

    def written(self, value: Image) -> bytes:
        """Compress in the source's kind."""
        buffer = io.BytesIO()
        to_pillow(value).save(buffer, "WEBP", **self._options)
        return buffer.getvalue()

    def delivered(self, encoded: bytes, value: Image) -> Image:
        """Decode it again when it is lossy."""
        if self._lossless:
            return value
        opened = PillowImage.open(io.BytesIO(encoded), formats=("WEBP",))
        # A picture that lost its last transparent pixel is written without alpha.
        return from_pillow(opened if opened.mode == value.mode else opened.convert(value.mode))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(type, payload) of the RIFF chunks; payloads have even length in the file."""
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        yield data[at : at + 4], data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def lossy_quality(frame: bytes) -> int:
    """libwebp's quality (0-100) of a VP8 key frame, estimated from its quantiser index.

    libwebp: index = 127 (1 - c), c = x^(1/3), x = q * 2/3 below q = 0.75, 2 q - 1 from there (q = quality / 100).
    """
    indices = quantiser_indices(frame)
    compression = math.exp(sum(math.log(max(1, 127 - index) / 127) for index in indices) / len(indices))
    linear = compression**3
    return round(100 * (linear * 1.5 if linear < 0.5 else (linear + 1) / 2))


def quantiser_indices(frame: bytes) -> list[int]:
    """Base quantiser index, or that of each of the four segments (0-127), of a VP8 key frame (RFC 6386 §9.2-9.6)."""
    bits = _BoolDecoder(frame[10:])
    bits.read(2)  # colour space, clamping
    absolute, segments = False, [0, 0, 0, 0]
    segmented = bits.read(1)
    if segmented:
        update_map, update_data = bits.read(1), bits.read(1)
        if update_data:
            absolute = bool(bits.read(1))
            segments = [bits.optional_signed(7) for _ in range(4)]
            for _ in range(4):
                bits.optional_signed(6)  # loop filter levels
        if update_map:
            for _ in range(3):
                bits.optional(8)
    bits.read(1 + 6 + 3)  # loop filter
    if bits.read(1) and bits.read(1):
        for _ in range(8):
            bits.optional_signed(6)
    bits.read(2)  # partitions
    base = bits.read(7)
    if not segmented:
        return [base]
    return [min(127, max(0, value if absolute else base + value)) for value in segments]


class _BoolDecoder:
    """The arithmetic decoder of RFC 6386 §7, at even odds, as the frame header uses it."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 2
        self._value = int.from_bytes(data[:2], "big")
        self._range, self._shifted = 255, 0

    def read(self, count: int) -> int:
        """An unsigned number of `count` bits."""
        number = 0
        for _ in range(count):
            number = number * 2 + self._bit()
        return number

    def optional(self, count: int) -> int:
        """A number behind a flag; 0 when absent."""
        return self.read(count) if self.read(1) else 0

    def optional_signed(self, count: int) -> int:
        """A magnitude and a sign behind a flag."""
        if not self.read(1):
            return 0
        magnitude = self.read(count)
        return -magnitude if self.read(1) else magnitude

    def _bit(self) -> int:
        split = 1 + (((self._range - 1) * 128) >> 8)
        bit = self._value >= split << 8
        if bit:
            self._range -= split
            self._value -= split << 8
        else:
            self._range = split
        while self._range < 128:
            self._value <<= 1
            self._range <<= 1
            self._shifted += 1
            if self._shifted == 8:
                self._shifted = 0
                self._value |= self._data[self._at] if self._at < len(self._data) else 0
                self._at += 1
        return int(bit)
