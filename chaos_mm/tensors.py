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

__all__ = [
    "Room",
    "Words",
    "bits_of",
    "changed",
    "chosen",
    "chunks",
    "generator",
    "marked",
    "pattern_of",
    "pieces",
    "places",
    "sample",
]

_SAMPLE = 1 << 14
# Elements at a time on a CPU: small enough for second-level cache, and for buffers that the allocator keeps.
_CHUNK = 1 << 16
_PLACES = 1 << 14  # and indices, of eight bytes each


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


class Room:
    """Memory for one changed copy at a time, used again for the next.

    Fresh memory is handed out by the kernel page by page when it is first touched, which costs more than most changes.
    """

    def __init__(self) -> None:
        self._held: Any = None

    def like(self, tensor: Any) -> Any:
        """An unfilled contiguous tensor of the same shape, format and device; the one given before is no more."""
        import torch

        size = tensor.numel() * tensor.element_size()
        if self._held is None or self._held.numel() < size or self._held.device != tensor.device:
            self._held = torch.empty(size, dtype=torch.uint8, device=tensor.device)
        return self._held[:size].view(tensor.dtype).view(tensor.shape)

    def copy(self, tensor: Any) -> Any:
        """``like``, filled with what the tensor holds."""
        return self.like(tensor).copy_(tensor)


def generator(rng: Rng, label: str, device: Any) -> Any:
    """A torch.Generator of its own for that label, on that device: for few draws, or laws that torch knows."""
    import torch

    return torch.Generator(device).manual_seed(int.from_bytes(rng.key(label, 8), "big") >> 1)


def chunks(count: int, device: Any) -> Iterator[tuple[int, int]]:
    """Half-open ranges that cover ``count`` elements: small ones on a CPU, one range elsewhere."""
    step = _CHUNK if str(device) == "cpu" else max(1, count)
    return ((start, min(start + step, count)) for start in range(0, count, step))


def pieces(*tensors: Any) -> Iterator[tuple[Any, ...]]:
    """The same pieces of tensors of one shape (three axes or more), one after another, all of each covered.

    On a CPU the whole up to 65,536 elements, or else rows of one head, so many elements or a single row; elsewhere the
    whole. No piece is a copy.
    """
    first = tensors[0]
    if first.device.type != "cpu" or first.numel() <= _CHUNK:
        yield tensors
        return
    rows = max(1, _CHUNK * first.shape[1] // max(1, first[:1].numel()))
    for head in range(first.shape[0]):
        for start in range(0, first.shape[1], rows):
            yield tuple(tensor[head, start : start + rows] for tensor in tensors)


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
            yield start, _below(words.take(stop - start, 32), limit, mask)


def _below(words: Any, limit: int, mask: Any) -> Any:
    """``words < limit`` into the mask; numpy is several times as fast as torch at this on a CPU."""
    import numpy as np
    import torch

    if mask.device.type != "cpu":
        return torch.lt(words, limit, out=mask)
    np.less(words.numpy(), limit, out=mask.numpy())
    return mask


def chosen(rng: Rng, label: str, tensor: Any, share: float) -> Any:
    """``marked`` over the whole tensor, as one mask of its shape."""
    import torch

    whole = torch.empty(tensor.numel(), dtype=torch.bool, device=tensor.device)
    for start, mask in marked(rng, label, whole.numel(), tensor.device, share):
        whole[start : start + mask.numel()] = mask
    return whole.view(tensor.shape)


def places(rng: Rng, label: str, count: int, device: Any, share: float) -> Iterator[Any]:
    """Indices of what ``marked`` marks, in ascending runs of 16,384 or more but for the last.

    They are to be read only, and are overwritten by the next run's.
    """
    if str(device) != "cpu":
        for start, mask in marked(rng, label, count, device, share):
            yield mask.nonzero().view(-1).add_(start)
        return
    import numpy as np
    import torch

    find = _Finder(min(count, _CHUNK), share)
    held, size = torch.empty(min(count, _CHUNK + _PLACES), dtype=torch.int64), 0
    for start, mask in marked(rng, label, count, device, share):
        found = find(mask.numpy())
        np.add(found, start, out=held.numpy()[size : size + len(found)])
        size += len(found)
        if size >= _PLACES:
            yield held[:size]
            size = 0
    if size:
        yield held[:size]


class _Finder:
    """``numpy.flatnonzero`` for masks of about that share: many times as fast as torch at this.

    Up to a tenth numpy seeks each place by itself, which from a fiftieth on takes twice as long as looking at every
    element, its way beyond a tenth: such a mask is found with an eighth of its size behind it, all of it set.
    """

    def __init__(self, most: int, share: float) -> None:
        import numpy as np

        self._more = most // 8 + 1 if 0.02 < share < 0.11 else 0
        self._held = np.ones(most + self._more, dtype=bool)

    def __call__(self, mask: Any) -> Any:
        import numpy as np

        if not self._more:
            return np.flatnonzero(mask)
        held = self._held[-self._more - len(mask) :]
        held[: len(mask)] = mask
        return np.flatnonzero(held)[: -self._more]


def sample(tensor: Any) -> Any:
    """Up to 16,384 elements of it, evenly spaced, as a flat float32 tensor: what statistics need."""
    flat = tensor.reshape(-1)
    return flat[:: -(-flat.numel() // _SAMPLE) or 1].float()


def bits_of(tensor: Any) -> Any:
    """The same memory as integers of the same width. Raises InvalidParams naming a format that is not known."""
    import torch

    return tensor.view(getattr(torch, format_of(tensor.dtype).integer))


def changed(old: Any, new: Any) -> int:
    """How many elements of two tensors of one shape (three axes or more) have another bit pattern."""
    return sum(_unequal(*pair) for pair in pieces(bits_of(old), bits_of(new)))


def _unequal(old: Any, new: Any) -> int:
    if old.device.type != "cpu":
        return int((old != new).sum())
    import numpy as np

    return int(np.count_nonzero(old.numpy() != new.numpy()))  # three times as fast as torch at this


def pattern_of(value: float, dtype: Any) -> int:
    """The bits of that number in that format, as ``bits_of`` shows them."""
    import torch

    return int(bits_of(torch.tensor([value], dtype=torch.float32).to(dtype)).item())
