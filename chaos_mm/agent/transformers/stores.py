"""Keys by which media are known again, and kept encoder outputs, of a server that told of them (``core.serving``)."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos_mm.agent.armed import Armed
from chaos_mm.agent.runtime import Runtime
from chaos_mm.core.blast_radius import RequestInfo
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Seam
from chaos_mm.core.serving import KeptOutputs

__all__ = ["KeptView", "MediaKeySeam"]
_KEY_BYTES: Final = 16
_MOST_KEYS: Final = 65536
"""Masked and private keys remembered for the flush of one lease."""
_MOST_REQUESTS: Final = 4096
"""Requests remembered whose outputs have private keys."""


class KeptView:
    """``EncoderCache`` over what a server keeps."""

    def __init__(self, kept: KeptOutputs) -> None:
        self._kept = kept

    @property
    def entries(self) -> int:
        """Outputs kept now."""
        return len(self._kept)

    @property
    def budget(self) -> int:
        """Entries it may hold."""
        return self._kept.budget

    def evict(self, share: float) -> int:
        """Drop that share, the longest unused first; nothing is in use between two batches."""
        return self._kept.evict(share)

    def set_budget(self, budget: int) -> None:
        """Another capacity, in entries."""
        self._kept.resize(budget)


class MaskedKeys:
    """``MediaKeys`` of one lease."""

    def __init__(self, seam: "MediaKeySeam", armed: Armed) -> None:
        self._seam, self._armed = seam, armed

    def mask(self, bits: int, salt: bytes) -> None:
        """From now on the selected canaries' keys are the salted first ``bits`` bits of theirs."""
        self._seam.masks[self._armed.serial] = (self._armed, bits, salt)

    def restore(self) -> Mapping[str, float]:
        """Whole keys again, what stood under the others dropped. Raises ChaosMMError where some of it still stands."""
        self._seam.masks.pop(self._armed.serial, None)
        return self._seam.flush(self._armed)


class MediaKeySeam:
    """Rewrites keys of media while a lease asks for it, and remembers them for the flush.

    A request whose embeddings a live lease changes gets a key of its own as well: its output must be computed for the
    fault to strike it, and must not be found by anybody else.
    """

    def __init__(self, runtime: Runtime, kept: Callable[[], KeptOutputs | None]) -> None:
        self._runtime, self._kept = runtime, kept
        self.masks: dict[int, tuple[Armed, int, bytes]] = {}
        self._used: dict[int, set[bytes]] = {}
        self._private: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def private(self, armed: Armed, request: str) -> bool:
        """Whether what is computed for that request's media is kept where nobody else will find it, or not at all.

        A key that was asked for before the lease began is everybody's: what it is computed for must stay whole.
        """
        return self._kept() is None or (armed.serial, request) in self._private

    def value(self, armed: Armed) -> Any:
        """What a hold fault of this seam acts on."""
        return MaskedKeys(self, armed)

    def rewrite(self, key: bytes, info: RequestInfo) -> bytes:
        """The key to use for a medium of that request; called while the gate is open."""
        self._runtime.fired(Seam.MEDIA_KEY)
        for armed, bits, salt in tuple(self.masks.values()):
            if armed.chosen(info):
                masked = _masked(key, bits, salt)
                self._remember(armed, masked)
                armed.count(info.id, "media_key", {"bits": float(bits)})
                return masked
        for armed in self._runtime.leases(Seam.EMBEDDING):
            if armed.chosen(info):
                own = _masked(key + info.id.encode(), 8 * _KEY_BYTES, str(armed.serial).encode())
                self._remember(armed, own)
                while len(self._private) >= _MOST_REQUESTS:
                    self._private.popitem(last=False)
                self._private[armed.serial, info.id] = None  # last: only what has its own key may be called private
                return own
        return key

    def flush(self, armed: Armed) -> Mapping[str, float]:
        """Drop what a lease's keys hold. Raises ChaosMMError where it is still found afterwards."""
        with self._lock:
            used = self._used.pop(armed.serial, set())
        kept = self._kept()
        if not used or kept is None:
            return {}
        dropped = kept.drop(used)
        left = sum(key in kept for key in used)
        if left:
            raise ChaosMMError(f"{left} encoder outputs under keys of lease {armed.name} are still there after a drop")
        return {"flushed_entries": float(dropped)}

    def _remember(self, armed: Armed, key: bytes) -> None:
        with self._lock:
            used = self._used.setdefault(armed.serial, set())
            if len(used) < _MOST_KEYS:
                used.add(key)


def _masked(key: bytes, bits: int, salt: bytes) -> bytes:
    number = int.from_bytes(hashlib.blake2b(key, digest_size=_KEY_BYTES).digest(), "big") >> (8 * _KEY_BYTES - bits)
    digest = hashlib.blake2b(number.to_bytes(_KEY_BYTES, "big"), key=salt[:64], digest_size=_KEY_BYTES)
    return b"chaos:" + digest.digest()
