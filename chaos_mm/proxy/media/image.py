"""Open a picture by what its bytes say, never by its declared type, after checks on the header alone."""

import io
import warnings
from collections.abc import Callable
from typing import Final

from PIL import Image as PillowImage

from chaos_mm.proxy.media.jpeg import MAX_SCANS, Jpeg
from chaos_mm.proxy.media.medium import Picture
from chaos_mm.proxy.media.png import SIGNATURE, Png
from chaos_mm.proxy.media.webp import Webp
from chaos_mm.proxy.policy import Limits, Undecodable

_CODECS: Final[dict[str, Callable[[bytes, PillowImage.Image], Picture]]] = {"JPEG": Jpeg, "PNG": Png, "WEBP": Webp}


def open_image(data: bytes, limits: Limits) -> Picture:
    """Decode a still JPEG, PNG or WebP.

    Raises Undecodable: unknown_format, broken_media, too_many_pixels, animated.
    """
    kind = _sniff(data)
    if kind is None:
        raise Undecodable("unknown_format")
    try:
        return _CODECS[kind](data, _opened(data, kind, limits))
    except Undecodable:
        raise
    except PillowImage.DecompressionBombError:
        raise Undecodable("too_many_pixels") from None
    except Exception:  # Pillow's plugins raise a dozen kinds on damaged files, IndexError and struct.error among them
        raise Undecodable("broken_media") from None


def _sniff(data: bytes) -> str | None:
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(SIGNATURE):
        return "PNG"
    return "WEBP" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _opened(data: bytes, kind: str, limits: Limits) -> PillowImage.Image:
    """The header only; pixels are not decoded yet."""
    opened = PillowImage.open(io.BytesIO(data), formats=(kind,))
    if opened.width * opened.height > limits.max_pixels:
        raise Undecodable("too_many_pixels")
    if kind == "JPEG" and data.count(b"\xff\xda") > MAX_SCANS:
        raise Undecodable("broken_media")
    # A multi-picture JPEG (MPO) is a photograph with extras; its first picture is the photograph.
    if kind != "JPEG" and getattr(opened, "n_frames", 1) > 1:
        raise Undecodable("animated")
    return opened


def ignore_pillow_size_warning() -> None:
    """--max-pixels decides in this process; Pillow's own warning at 89 megapixels would only print to stderr."""
    warnings.simplefilter("ignore", PillowImage.DecompressionBombWarning)
