"""Encoder outputs kept by a hash of the decoded medium, the longest unused dropped first, as real engines keep them."""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import torch

from chaos_mm.core import serving
from chaos_mm.target import tokens
from chaos_mm.target.generation import Media, ModelInput
from chaos_mm.target.network import OmniModel

__all__ = ["BUDGET", "EncoderCache", "medium_key"]
BUDGET = 256
"""Entries kept at most, 3 KiB each."""
PLACEHOLDERS = {"vision": tokens.IMAGE_TOKENS, "audio": tokens.AUDIO_TOKENS}
_Key = tuple[str, bytes]


def medium_key(plane: torch.Tensor | None) -> bytes:
    """16 bytes that know a decoded picture or recording again; b"" for none."""
    if plane is None:
        return b""
    return hashlib.blake2b(plane.contiguous().numpy(), digest_size=16, person=b"chaos_mm.medium").digest()


class EncoderCache:
    """Q-Former queries (6, 128) by medium. Read and filled by the decode thread; any thread may drop and resize.

    ``count`` is told of each lookup whether it was found.
    """

    def __init__(self, count: Callable[[bool], None], budget: int = BUDGET) -> None:
        self.budget, self._count = budget, count
        self._kept: OrderedDict[_Key, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return any((role, key) in self._kept for role in PLACEHOLDERS)

    def drop(self, keys: Iterable[bytes]) -> int:
        """Forget what is kept under these; how many outputs that were."""
        places = [(role, key) for key in keys for role in PLACEHOLDERS]
        with self._lock:
            return sum(self._kept.pop(place, None) is not None for place in places)

    def evict(self, share: float) -> int:
        """Forget that share (0-1, rounded up) of the entries, the longest unused first; how many."""
        with self._lock:
            count = math.ceil(len(self._kept) * min(1.0, max(0.0, share)))
            for _ in range(count):
                self._kept.popitem(last=False)
            return count

    def resize(self, budget: int) -> None:
        """Keep at most ``budget`` entries from now on."""
        with self._lock:
            self.budget = max(0, budget)
            self._trim()

    def states(self, model: OmniModel, inputs: Sequence[ModelInput], ids: Sequence[str]) -> Media:
        """As ``media_states``, computed only for what is not kept; ``ids`` are the requests of the inputs."""
        pictures = [(e.pixels, e.pixels_key, i) for e, i in zip(inputs, ids, strict=True) if e.pixels is not None]
        sounds = [(e.mel, e.mel_key, i) for e, i in zip(inputs, ids, strict=True) if e.mel is not None]
        image = self._encode("vision", lambda planes: model.see(planes)[1], pictures) if pictures else None
        audio = self._encode("audio", lambda planes: model.hear(planes)[1], sounds) if sounds else None
        return image, audio

    def _encode(
        self,
        role: str,
        encoder: Callable[[torch.Tensor], torch.Tensor],
        media: Sequence[tuple[torch.Tensor, bytes, str]],
    ) -> torch.Tensor:
        keys = [(role, serving.media_key(key, request)) if key else None for _, key, request in media]
        found = [self._find(key) for key in keys]
        missing = [place for place, kept in enumerate(found) if kept is None]
        if not missing:
            return torch.stack([kept for kept in found if kept is not None])
        with serving.media(role, [media[place][2] for place in missing]):
            made = encoder(torch.stack([media[place][0] for place in missing]))
        if made.shape[:2] != (len(missing), PLACEHOLDERS[role]):
            given = made.shape[0] * made.shape[1]
            raise RuntimeError(f"{role}: {given} rows for {len(missing)} x {PLACEHOLDERS[role]} placeholders")
        for place, row in zip(missing, made, strict=True):
            found[place] = row
            self._keep(keys[place], row)
        return made if len(missing) == len(media) else torch.stack([kept for kept in found if kept is not None])

    def _find(self, key: _Key | None) -> torch.Tensor | None:
        if key is None:
            return None
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        self._count(kept is not None)
        return kept

    def _keep(self, key: _Key | None, row: torch.Tensor) -> None:
        if key is None:
            return
        with self._lock:
            self._kept[key] = row.clone()
            self._trim()

    def _trim(self) -> None:
        while len(self._kept) > self.budget:
            self._kept.popitem(last=False)
