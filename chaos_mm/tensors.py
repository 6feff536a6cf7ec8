"""Seeded draws on tensors, and edits that work on every number format of a key-value cache.

Draws are the same for the same request, part and kind of device, whatever was struck before. On a CPU they are the raw
stream of numpy's PCG64, which NumPy promises never to change and which is ten times as fast as torch's generator; on
another device they come from a torch generator there, and a replay needs the same kind of device and torch version. No
global generator is read or advanced. Edits and comparisons go by bit pattern: float8 has few operations of its own,
and NaN is unequal to itself.
"""

from collections.abc import Iterator
from typing import Any

from chaos_mm.core.bits import format_of
from chaos_mm.core.rng import Rng

__all__ = ["Words", "bits_of", "changed", "chosen", "chunks", "filled", "generator", "marked", "places", "sample"]

_SAMPLE = 1 << 14
# Elements at a time on a CPU: small enough for second-level cache, and for buffers that the allocator keeps.
_CHUNK = 1 << 16


class Words:
    """A stream of random words for one label, on one device."""

    def __init__(self, rng: Rng, label: str, device: Any) -> None:
        import numpy as np
        import torch

        key = int.from_bytes(rng.key(label, 16), "big")
        self._device = torch.device(device)
        self._raw = np.random.PCG64(key).random_raw if self._device.type == "cpu" else None
        self._generator = None if self._raw else torch.Generator(self._device).manual_seed(key >> 65)

    def take(self, count: int, width: int) -> Any:
        """``count`` signed integers of ``width`` bits (16, 32 or 64), every pattern alike."""
        import torch

        kind, whole = getattr(torch, f"int{width}"), -(-count * width // 64)
        if self._raw is not None:
            return torch.from_numpy(self._raw(whole).view(f"i{width // 8}"))[:count]
        words = torch.empty(whole, dtype=torch.int64, device=self._device)
        return words.random_(-(1 << 63), None, generator=self._generator).view(kind)[:count]


def generator(rng: Rng, label: str, device: Any) -> Any:
    """A torch.Generator of its own for that label, on that device: for few draws, or laws that torch knows."""
    import torch

    return torch.Generator(device).manual_seed(int.from_bytes(rng.key(label, 8), "big") >> 1)


def chunks(count: int, device: Any) -> Iterator[tuple[int, int]]:
    """Half-open ranges that cover ``count`` elements: small ones on a CPU, one range elsewhere."""
    step = _CHUNK if str(device) == "cpu" else max(1, count)
    return ((start, min(start + step, count)) for start in range(0, count, step))


def marked(rng: Rng, label: str, count: int, device: Any, share: float) -> Iterator[tuple[int, Any]]:
    """Chunk by chunk where it starts and a mask: each element by itself with that probability, 32 bits fine.

    For one label a larger share holds the smaller one's choice, so damage grows with it. The mask is overwritten by the
    next chunk's.
    """
    import torch

    limit = round(min(share, 1.0) * (1 << 32)) - (1 << 31)
    words = Words(rng, label, device)
    buffer = torch.empty(min(count, _CHUNK) if str(device) == "cpu" else count, dtype=torch.bool, device=device)
    for start, stop in chunks(count, device):
        mask = buffer[: stop - start]
        if limit == 1 << 31:  # all of them: one more than the largest word
            yield start, mask.fill_(True)
        else:
            yield start, torch.lt(words.take(stop - start, 32), limit, out=mask)


def chosen(rng: Rng, label: str, tensor: Any, share: float) -> Any:
    """``marked`` over the whole tensor, as one mask of its shape."""
    import torch

    whole = torch.empty(tensor.numel(), dtype=torch.bool, device=tensor.device)
    for start, mask in marked(rng, label, whole.numel(), tensor.device, share):
        whole[start : start + mask.numel()] = mask
    return whole.view(tensor.shape)


def places(rng: Rng, label: str, count: int, device: Any, share: float) -> Iterator[Any]:
    """Indices of what ``marked`` marks, ascending, at least 65,536 at a time but for the last."""
    import torch

    waiting, size = [], 0
    for start, mask in marked(rng, label, count, device, share):
        waiting.append(_places(mask).add_(start))
        size += waiting[-1].numel()
        if size >= _CHUNK:
            yield torch.cat(waiting)
            waiting, size = [], 0
    if size:
        yield torch.cat(waiting)


def _places(mask: Any) -> Any:
    """Indices of a flat mask; numpy is many times as fast as torch at this on a CPU."""
    if mask.device.type != "cpu":
        return mask.nonzero().view(-1)
    import numpy as np
    import torch

    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def sample(tensor: Any) -> Any:
    """Up to 16,384 elements of it, evenly spaced, as a flat float32 tensor: what statistics need."""
    flat = tensor.reshape(-1)
    return flat[:: -(-flat.numel() // _SAMPLE) or 1].float()


def bits_of(tensor: Any) -> Any:
    """The same memory as integers of the same width. Raises InvalidParams naming a format that is not known."""
    import torch

    return tensor.view(getattr(torch, format_of(tensor.dtype).integer))


def changed(old: Any, new: Any) -> int:
    """How many elements have another bit pattern."""
    return int((bits_of(old) != bits_of(new)).sum())


def filled(tensor: Any, mask: Any, value: float) -> Any:
    """A copy with ``value`` where the mask (broadcast to its shape) holds."""
    import torch

    pattern = bits_of(torch.tensor([value], dtype=torch.float32).to(tensor.dtype)).item()
    return bits_of(tensor).masked_fill(mask, pattern).view(tensor.dtype)
