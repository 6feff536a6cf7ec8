"""A picture with a four-digit code, drawn with the standard library: the chaos process has no Pillow.

Digits of 5 by 7 dots, as character displays have them, black on white, in a PNG of 8-bit greys.
"""

import base64
import struct
import zlib

__all__ = ["data_uri", "draw"]

# Rows from the top, five bits each, the leftmost dot first.
_DOTS = {
    "0": (0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E),
    "1": (0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E),
    "2": (0x0E, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1F),
    "3": (0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E),
    "4": (0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02),
    "5": (0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E),
    "6": (0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E),
    "7": (0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08),
    "8": (0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E),
    "9": (0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C),
}
_WIDTH, _HEIGHT, _MARGIN = 5, 7, 4
_WHITE, _BLACK = b"\xff", b"\x00"


def draw(code: str, scale: int = 4) -> bytes:
    """The PNG of some digits, ``scale`` pixels a dot."""
    width = len(code) * (_WIDTH + 1) - 1 + 2 * _MARGIN
    height = width * 2 // 3
    top = (height - _HEIGHT) // 2
    rows = []
    for y in range(height):
        dots = [_dot(code, x - _MARGIN, y - top) for x in range(width)]
        line = b"\x00" + b"".join((_BLACK if dot else _WHITE) * scale for dot in dots)  # filter type 0, none
        rows.append(line * scale)
    header = struct.pack(">IIBBBBB", width * scale, height * scale, 8, 0, 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"".join(rows))) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def data_uri(code: str) -> str:
    """As the ``url`` of an ``image_url`` part."""
    return "data:image/png;base64," + base64.b64encode(draw(code)).decode()


def _dot(code: str, x: int, y: int) -> bool:
    number, column = divmod(x, _WIDTH + 1)
    inside = 0 <= number < len(code) and column < _WIDTH and 0 <= y < _HEIGHT
    return inside and bool(_DOTS[code[number]][y] >> (_WIDTH - 1 - column) & 1)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
