"""Text that tries to leave its place: markup, quotes, other directions, great length, signs of every kind."""

from collections.abc import Mapping
from typing import Any

TEXTS = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "]]><!--</title></svg><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a|b|c\n| --- |\n[click](javascript:alert(1)) ![x](http://evil.example/x.png) @everyone #1 `code`",
    "\u202eright to left\u202c שלום עולם مرحبا",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 zalgo t̷̢͖͓̍e̵͉̎x̴͚̌t",
    "\ud83d lone, \x00 null, \x1b[31m red, \x07, \x85, \ufffe",
    "x" * 10_000,
    "long " * 2_000,
    "../../../../etc/passwd",
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "",
)
# What must keep its meaning for the rest to be read at all.
_KEPT = {"verdict", "words", "word", "event", "phase", "comparison", "sli", "kind", "at"}


def poisoned(told: Any, text: str, key: str = "") -> Any:
    """The same JSON with every text, and every key that is data, replaced."""
    if isinstance(told, Mapping):
        named = {"params", "configuration", "versions", "achieved", "filters"}
        return {
            (text + name if key in named else name): poisoned(value, text, "" if key in named else name)
            for name, value in told.items()
        }
    if isinstance(told, list):
        return [poisoned(value, text, key) for value in told]
    return text if isinstance(told, str) and key not in _KEPT else told
