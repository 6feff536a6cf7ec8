"""Samples of a run as data URIs, so that one file can be mailed. Nothing outside the run's folder is ever read."""

import base64
import difflib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from chaos_mm.report.files import plain_bytes
from chaos_mm.report.loose import text

__all__ = ["Embedded", "compared", "picture", "sound", "words"]

_MOST_BYTES = 2 << 20
_MOST_CHARACTERS, _MOST_PIECES = 4_000, 300
_PIECE = re.compile(r"\w+|\s+|[^\w\s]")
_TYPES = {
    ".png": ("image/png", b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
    ".jpg": ("image/jpeg", b"\xff\xd8\xff", b"\xff\xd9"),
    ".jpeg": ("image/jpeg", b"\xff\xd8\xff", b"\xff\xd9"),
    ".webp": ("image/webp", b"RIFF", b""),
    ".wav": ("audio/wav", b"RIFF", b""),
    ".mp3": ("audio/mpeg", b"", b""),
    ".flac": ("audio/flac", b"fLaC", b""),
    ".ogg": ("audio/ogg", b"OggS", b""),
}


@dataclass(frozen=True, slots=True)
class Embedded:
    """A medium as a ``data:`` URI, or the reason why there is none."""

    uri: str = ""
    problem: str = ""


def picture(folder: Path, name: str) -> Embedded:
    """A PNG, JPEG or WebP of the run's folder."""
    return _embedded(folder, name, "image/")


def sound(folder: Path, name: str) -> Embedded:
    """A WAV, MP3, FLAC or Ogg of the run's folder."""
    return _embedded(folder, name, "audio/")


def words(folder: Path, name: str) -> tuple[str, str]:
    """The text in a file of the run's folder, at most 4,000 characters, and why there is none."""
    data, problem = _bytes(folder, name)
    return text(data.decode("utf-8", "replace"))[:_MOST_CHARACTERS], problem


def compared(before: str, after: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both texts in pieces, each with whether it is only in that one, word by word."""
    old, new = _PIECE.findall(before), _PIECE.findall(after)
    left, right = [], []
    # Where a few words make up all of a long text, comparing would take minutes; they then only stand beside others.
    often = max(len(old), len(new)) > _MOST_PIECES
    for kind, a, b, c, d in difflib.SequenceMatcher(a=old, b=new, autojunk=often).get_opcodes():
        if b > a:
            left.append((kind != "equal", "".join(old[a:b])))
        if d > c:
            right.append((kind != "equal", "".join(new[c:d])))
    return left, right


def _embedded(folder: Path, name: str, kind: str) -> Embedded:
    media_type, head, tail = _TYPES.get(PurePosixPath(name).suffix.lower(), ("", b"", b""))
    if not media_type.startswith(kind):
        return Embedded(problem=f"{name[:80]!r} is no file that a page can show")
    data, problem = _bytes(folder, name)
    if problem:
        return Embedded(problem=problem)
    if not data.startswith(head) or not data.rstrip(b"\0").endswith(tail) or not _as_long_as_told(data):
        return Embedded(problem=f"{name[:80]} is cut off or broken")
    return Embedded(f"data:{media_type};base64,{base64.b64encode(data).decode()}")


def _as_long_as_told(data: bytes) -> bool:
    """A RIFF file says how long it is; a WAV whose writer could not go back says 0 or the largest number."""
    if not data.startswith(b"RIFF"):
        return True
    told = int.from_bytes(data[4:8], "little")
    unknown = told in (0, 0xFFFFFFFF) and data[8:12] == b"WAVE"
    return len(data) > 12 and (unknown or len(data) >= told + 8)


def _bytes(folder: Path, name: str) -> tuple[bytes, str]:
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return b"", f"{name[:80]!r} lies outside the run's folder"
        data = plain_bytes(path, _MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        return b"", f"{name[:80]!r} cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(data) > _MOST_BYTES:
        return b"", f"{name[:80]!r} is longer than {_MOST_BYTES >> 20} MiB"
    return data, "" if data else f"{name[:80]!r} is empty"
