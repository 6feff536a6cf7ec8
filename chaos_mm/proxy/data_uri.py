"""Data URIs (RFC 2397) and bare base64, decoded and put back with everything but the payload kept."""

import re
from dataclasses import dataclass

import pybase64

from chaos_mm.proxy.policy import Undecodable

_PREFIX = re.compile(rb"data:[!#-\[\]-~]*;base64,", re.IGNORECASE)  # visible ASCII without the quote and backslash


@dataclass(frozen=True, slots=True)
class Payload:
    """Decoded bytes and what stood before them (`data:image/png;base64,`, or nothing)."""

    prefix: bytes
    data: bytes

    def replaced(self, data: bytes) -> bytes:
        """A JSON string of the same prefix with other bytes."""
        # Neither base64 nor a prefix that was accepted needs a JSON escape.
        return b"".join((b'"', self.prefix, pybase64.b64encode(data), b'"'))


def read_payload(text: bytes, *, bare: bool) -> Payload:
    """Decode base64. Raises Undecodable: remote_media, bad_data_uri, bad_base64."""
    prefix = b"" if bare else _prefix(text)
    try:
        return Payload(prefix, pybase64.b64decode(text[len(prefix) :], validate=True))
    except ValueError:
        raise Undecodable("bad_base64") from None


def _prefix(text: bytes) -> bytes:
    scheme = text[:8].lower()
    if scheme.startswith((b"http:", b"https:")):
        raise Undecodable("remote_media")
    prefix = text[: text.find(b",", 0, 256) + 1]
    if _PREFIX.fullmatch(prefix) is None:
        raise Undecodable("bad_data_uri")
    return prefix
