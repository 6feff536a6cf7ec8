"""Who a request is: the plain id out of what an engine wraps around it, and whether it is a canary."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from chaos_mm.core.canary import canary_key, read_canary_id

__all__ = ["OWN_PREFIX", "Names", "Who"]
OWN_PREFIX: Final = "chaos-mm-own-"
"""Ids of the requests by which adapters prove their seams: no lease strikes them, and none counts them as a user's."""
_WRAPPED: Final = re.compile(r"(?:chatcmpl|cmpl)-(?P<id>.+)-[0-9a-f]{8}")
_REMEMBERED: Final = 8192


@dataclass(frozen=True)
class Who:
    """A request: its plain id (out of what the engine wraps around it), whether its mac proves it a canary, and what
    evidence may call it: a canary by its id, anybody else by a keyed hash.
    """

    id: str
    canary: bool
    shown: str


class Names:
    """Reads ids by the key of one token, and remembers the last few thousand."""

    def __init__(self, token: str) -> None:
        """``token`` of the control API: canaries' macs are made from it."""
        self._key = canary_key(token)
        self._known: dict[str, Who] = {}

    def identify(self, request_id: str) -> Who:
        """Who that is, by the id that the engine uses."""
        who = self._known.get(request_id)
        if who is None:
            who = self._read(request_id)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[request_id] = who
        return who

    def forget(self, request_id: str) -> Who | None:
        """It has finished; who it was, where that is remembered."""
        return self._known.pop(request_id, None)

    def _read(self, request_id: str) -> Who:
        canary = read_canary_id(self._key, request_id)
        if canary is not None:
            return Who(canary.id, True, canary.id)
        found = _WRAPPED.fullmatch(request_id)
        plain = found["id"] if found else request_id
        digest = hashlib.blake2b(plain.encode(), key=self._key, digest_size=8, person=b"chaos_mm.request")
        return Who(plain, False, f"hash:{digest.hexdigest()}")
