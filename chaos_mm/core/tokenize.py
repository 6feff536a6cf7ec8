"""Named tokenizers and media placeholders: what a fault on text counts in, and what it must never cut through.

A fault's ``tokenizer`` parameter is a name, never a path: whoever starts the point registers files, a lease can only
choose among what is registered. Built in are ``words`` and ``characters``; ``tiktoken:<encoding>`` works where tiktoken
is installed and the encoding lies in its cache, since a fault never downloads.
"""

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from chaos_mm.core.errors import InvalidParams, MissingExtra

__all__ = ["PLACEHOLDER", "Tokenizer", "is_boundary", "names", "prose", "register", "register_file", "tokenizer"]
Tokenizer = Callable[[str], list[tuple[int, int]]]
"""Text to the (start, end) of its tokens, in code points, in order; gaps between tokens are allowed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MEDIA = r"(?:image|img|picture|audio|sound|speech|video|vision|media|frame|patch)"
PLACEHOLDER = re.compile(
    # Runs are bounded, so that no text of a user's costs more than linear time.
    rf"<\|?/?[a-z_-]{{0,32}}{_MEDIA}[a-z0-9_-]{{0,32}}/?\|?>"  # <image> <|image_pad|> <|vision_start|> <image_1> </img>
    rf"|\[(?:[a-z]{{1,16}}_)?{_MEDIA}[a-z0-9_]{{0,32}}\]",  # [IMG] [IMG_BREAK] [IMG_END] [BEGIN_AUDIO]
    re.IGNORECASE,
)
"""The marks that stand for media in the prompts of the model families in use; matched whole."""

# One ideograph or kana is a word of its own; other words run to the next, with the marks and space that follow them.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_WORD = rf"(?:[{_CJK}]|[^\W{_CJK}]+(?:['’][^\W{_CJK}]+)*)\W*|\W+"

# UAX #29: Grapheme_Extend and SpacingMark beyond the mark categories, and trailing jamo; Prepend; units before joining.
_EXTENDERS = (
    *((0x200C, 0x200D), (0x0E33, 0x0E33), (0x0EB3, 0x0EB3), (0xFF9E, 0xFF9F), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F)),
    *((0x1160, 0x11FF), (0xD7B0, 0xD7FB)),
)
_PREPENDED = (
    *((0x0600, 0x0605), (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2), (0x0D4E, 0x0D4E)),
    *((0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x111C2, 0x111C3), (0x113D1, 0x113D1), (0x1193F, 0x1193F)),
    *((0x11941, 0x11941), (0x11A3A, 0x11A3A), (0x11A84, 0x11A89), (0x11D46, 0x11D46), (0x11F02, 0x11F02)),
)
_UNIT = re.compile("[\U0001f1e6-\U0001f1ff]{2}|\r\n|.", re.DOTALL)

# SHA-256 of the files tiktoken reads (as its own openai_public.py has them): it replaces a wrong one by a download.
_TIKTOKEN = {
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
_TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"  # its SHA-1 names the cached file

_loaders: dict[str, Callable[[], Tokenizer]] = {}
_loaded: dict[str, Tokenizer] = {}
_lock = threading.Lock()


def names() -> list[str]:
    """Every tokenizer a lease can name here."""
    return sorted(_loaders) + [f"tiktoken:{name}" for name in _TIKTOKEN if _tiktoken_file(name) is not None]


def register(name: str, loader: Callable[[], Tokenizer]) -> None:
    """Offer a tokenizer; ``loader`` runs once, at its first use. Raises ValueError for a bad or a taken name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"tokenizer name {name!r} is not allowed; it must be 1-64 of A-Z a-z 0-9 _ . -")
    with _lock:
        if name in _loaders:
            raise ValueError(f"a tokenizer named {name!r} is registered already")
        _loaders[name] = loader


def register_file(name: str, path: Path) -> None:
    """Offer a ``tokenizer.json`` of Hugging Face's `tokenizers`, for whoever starts the point.

    Raises ValueError when there is no such file, MissingExtra without the package; a broken file is found at first use.
    """
    if not path.is_file():
        raise ValueError(f"tokenizer {name!r}: there is no file {str(path)!r}")
    if find_spec("tokenizers") is None:
        raise MissingExtra.of("tokenizers", "proxy")
    register(name, lambda: _from_file(path))


def tokenizer(name: str) -> Tokenizer:
    """The tokenizer of that name. Raises InvalidParams naming those there are."""
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name)
        return _loaded[name]


def _load(name: str) -> Tokenizer:
    if name in _loaders:
        return _loaders[name]()
    encoding = name.removeprefix("tiktoken:")
    if encoding != name and _tiktoken_file(encoding) is not None:
        return _from_tiktoken(encoding)
    raise InvalidParams(f"tokenizer={name!r} is not known at this point; it must be one of {', '.join(names())}")


def _from_file(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer as HubTokenizer

    made = HubTokenizer.from_file(str(path))
    made.no_truncation()
    made.no_padding()
    return lambda text: [span for span in made.encode(text, add_special_tokens=False).offsets if span[0] < span[1]]


def _tiktoken_file(encoding: str) -> Path | None:
    """Where tiktoken has cached the encoding, or None where loading it would mean a download."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", "")
    if encoding not in _TIKTOKEN or not folder or find_spec("tiktoken") is None:
        return None
    cached = Path(folder) / hashlib.sha1(_TIKTOKEN_URL.format(encoding).encode(), usedforsecurity=False).hexdigest()
    whole = cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == _TIKTOKEN[encoding]
    return cached if whole else None


def _from_tiktoken(encoding: str) -> Tokenizer:
    made = import_module("tiktoken").get_encoding(encoding)

    def spans(text: str) -> list[tuple[int, int]]:
        starts = made.decode_with_offsets(made.encode_ordinary(text))[1]
        return list(zip(starts, [*starts[1:], len(text)], strict=True))

    return spans


def prose(text: str) -> list[tuple[int, int]]:
    """The (start, end) of every stretch of text around and between media placeholders."""
    marks = [mark.span() for mark in PLACEHOLDER.finditer(text)]
    starts, ends = [0, *(end for _, end in marks)], [*(start for start, _ in marks), len(text)]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _words(text: str) -> list[tuple[int, int]]:
    return [word.span() for word in re.finditer(_WORD, text)]  # compiled, for 3 ms, at its first use


def _characters(text: str) -> list[tuple[int, int]]:
    units = [unit.start() for unit in _UNIT.finditer(text)]
    edges = [*(i for i in units if i == 0 or not _is_joined(text, i)), len(text)]
    return list(zip(edges, edges[1:], strict=False))


def is_boundary(text: str, index: int) -> bool:
    """Whether text may be cut before ``index`` without splitting what a reader sees as one character.

    Never finer than the extended grapheme clusters of Unicode's UAX #29, at a few places coarser.
    """
    if index <= 0 or index >= len(text):
        return True
    if text[index - 1 : index + 1] == "\r\n" or _is_joined(text, index):
        return False
    run = index
    while run > 0 and _is_flag(text[run - 1]):
        run -= 1
    return not _is_flag(text[index]) or (index - run) % 2 == 0


def _is_joined(text: str, index: int) -> bool:
    """Whether the character at ``index`` belongs to what stands before it; flags and CR LF apart."""
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return False
    return _extends(after) or _holds_on(before, after) or _is_conjunct(text, index)


def _extends(char: str) -> bool:
    """Marks, joiners, emoji modifiers, tags and trailing jamo."""
    code = ord(char)
    return unicodedata.category(char) in ("Mn", "Mc", "Me") or any(low <= code <= high for low, high in _EXTENDERS)


def _holds_on(before: str, after: str) -> bool:
    """Zero-width joiners, prepended marks and leading jamo take what stands after them."""
    code, leading = ord(before), "\u1100\u115f\ua960\ua97c"
    if code == 0x200D or any(low <= code <= high for low, high in _PREPENDED):
        return True
    is_leading = [leading[0] <= c <= leading[1] or leading[2] <= c <= leading[3] for c in (before, after)]
    return is_leading[0] and (is_leading[1] or "\uac00" <= after <= "\ud7a3")


def _is_conjunct(text: str, index: int) -> bool:
    """Whether a virama among the marks before ``index`` joins two letters of an Indic script."""
    at = index - 1
    while at >= 0 and unicodedata.category(text[at]).startswith("M"):
        if unicodedata.combining(text[at]) == 9:
            return True
        at -= 1
    return False


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


register("words", lambda: _words)
register("characters", lambda: _characters)
