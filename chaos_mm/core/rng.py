"""Seeded randomness that depends on the request alone, never on the order or the thread.

Every number comes from blake2b over (seed, request id, part, fault), so the same request is hurt in the same way
under any concurrency, on any machine; no global generator is read or advanced. Bulk bytes are an AES-128-CTR
keystream (FIPS 197, SP 800-38A): fixed by a standard, so that replays survive library updates, and the fastest
source at hand.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from chaos_mm.core.errors import MissingExtra

T = TypeVar("T")
_ZEROS = memoryview(bytes(1 << 17))  # what CTR encrypts to give its keystream
_DOUBLE = 2.0**-53  # a 53-bit integer times this is uniform on [0, 1) with full double resolution


class Rng:
    """A stream of draws keyed by 32 bytes; cheap to make (about 2 µs), one per application of a fault."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._drawn = 0

    @classmethod
    def derive(cls, seed: int, request_id: str, part: str, fault: str) -> "Rng":
        """The stream of one fault on one part of one request."""
        fields = (str(seed), request_id, part, fault)
        # Length prefixes keep ("a", "bc") and ("ab", "c") apart.
        data = b"".join(len(f.encode()).to_bytes(4, "big") + f.encode() for f in fields)
        return cls(hashlib.blake2b(data, digest_size=32, person=b"chaos_mm.rng").digest())

    def key(self, label: str, size: int = 16) -> bytes:
        """``size`` (1–64) bytes of key material for a sub-stream of that name; does not advance this stream."""
        return hashlib.blake2b(label.encode(), key=self._key, digest_size=size, person=b"chaos_mm.key").digest()

    def random(self) -> float:
        """Uniform on [0, 1)."""
        self._drawn += 1
        digest = hashlib.blake2b(self._drawn.to_bytes(8, "big"), key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) * _DOUBLE

    def uniform(self, low: float, high: float) -> float:
        """Uniform on [low, high)."""
        return low + (high - low) * self.random()

    def integer(self, low: int, high: int) -> int:
        """Uniform on low … high - 1; ``high`` must be above ``low``."""
        if high <= low:
            raise ValueError(f"integer({low}, {high}): high must be above low")
        return low + int(self.random() * (high - low))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.integer(0, len(items))]

    def bytes(self, count: int, label: str = "bytes") -> bytes:
        """``count`` uniform bytes: the AES-128-CTR keystream of ``key(label)``. Raises what ``keystream`` raises."""
        out = bytearray(count)
        self.keystream(label)(out)
        return bytes(out)

    def keystream(self, label: str = "bytes") -> Callable[[Any], None]:
        """A function that overwrites a writable byte buffer with the next bytes of the keystream ``bytes`` reads.

        Filling one small buffer again and again is several times faster than fresh megabytes, whose pages the kernel
        has to hand out one by one. Raises MissingExtra without `cryptography`.
        """
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise MissingExtra.of("cryptography", "proxy") from None
        encryptor = Cipher(algorithms.AES(self.key(label)), modes.CTR(bytes(16))).encryptor()

        def fill(out: Any) -> None:
            view = memoryview(out).cast("B")
            for start in range(0, len(view), len(_ZEROS)):
                piece = view[start : start + len(_ZEROS)]
                encryptor.update_into(_ZEROS[: len(piece)], piece)

        return fill
