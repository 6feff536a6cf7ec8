"""What a fault overwrote in tensors, and how it comes back: element by element, only where it is still the fault's.

Everything is compared as integers of the same size, so that NaN equals itself. An element that the engine has written
since, or whose block has another owner, is left alone. Beyond the cap nothing is saved: the place is invalidated
instead.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from chaos_mm.core.errors import ChaosMMError

__all__ = ["UNDO_BYTES", "Restored", "UndoStore", "as_integers"]

logger = logging.getLogger("chaos_mm.agent")
UNDO_BYTES: Final = 256 << 20
"""Default cap of ``CHAOS_MM_AGENT_UNDO_BYTES``, over all leases of a process."""
_SPARSE_BELOW: Final = 8  # up to one changed element in so many, positions and both values are kept instead of copies


@dataclass
class Restored:
    """What an undo came to: elements put back, left alone, blocks invalidated, bytes that had been saved.

    ``reason``: why it is not proven; ``waiting``: another lease's change lies over it, so part of it must wait.
    """

    restored_elements: int = 0
    skipped_elements: int = 0
    invalidated_blocks: int = 0
    saved_bytes: int = 0
    reason: str = ""
    waiting: bool = False


@dataclass(eq=False)
class _Record:
    """One overwritten place. ``at``: changed positions in the flattened view, or None where whole copies are kept."""

    lease: Hashable
    locate: Callable[[], Any]
    at: Any
    saved: Any
    wrote: Any
    bytes: int
    on_restore: Callable[[int, int], None] | None
    invalidate: Callable[[], int] | None
    shape: tuple[int, ...] = ()


class _Left:
    """Records that stay, the newest first, and where they lie now."""

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self._spans: list[tuple[int, int] | None] = []

    def add(self, record: _Record) -> None:
        self.records.append(record)

    def covers(self, record: _Record) -> bool:
        """Whether one of them lies over part of the same memory."""
        if not self.records or record.saved is None:
            return False
        self._spans += [_span(other) for other in self.records[len(self._spans) :]]
        mine = _span(record)
        return mine is not None and any(_overlap(mine, other) for other in self._spans)


class UndoStore:
    """Of one process, for all its leases; from any thread."""

    def __init__(self, limit_bytes: int = UNDO_BYTES) -> None:
        """``limit_bytes``: most bytes kept at once."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._records: list[_Record] = []
        self._early: dict[Hashable, Restored] = {}
        self._forgotten: dict[Hashable, int] = {}
        self._lock = threading.RLock()

    def write(
        self,
        view: Any,
        new: Any,
        *,
        lease: Hashable,
        locate: Callable[[], Any] | None = None,
        on_restore: Callable[[int, int], None] | None = None,
        invalidate: Callable[[], int] | None = None,
    ) -> int:
        """Put ``new`` (the view's shape; cast to its dtype) into the live ``view``; bytes saved for it.

        ``locate()`` finds the place again at undo time, as a tensor of the same shape and dtype, where the engine may
        have moved it, or answers None where it is gone or another owner's; default: the view itself.
        ``on_restore(restored, skipped)`` is called once it is undone. ``invalidate()`` drops the place from the engine
        and says how many blocks that were; it is used instead of bytes beyond the cap.

        Raises ValueError where shapes differ or ``new`` is the view itself, ChaosMMError beyond the cap where nothing
        can be invalidated; the view is then unchanged.
        """
        made = _fitting(view, new)
        with self._lock:
            record = self._saved(view, made, lease, self.limit_bytes - self.held_bytes)
            if record is None and self._forget_gone():
                record = self._saved(view, made, lease, self.limit_bytes - self.held_bytes)
            room = self.limit_bytes - self.held_bytes
            if record is None and invalidate is None:
                raise ChaosMMError(
                    f"undo: {view.numel() * view.element_size()} bytes are more than the {room} left of "
                    f"{self.limit_bytes}, and this place cannot be invalidated; raise CHAOS_MM_AGENT_UNDO_BYTES"
                )
            if record is None:
                record = _Record(lease, _gone, None, None, None, 0, None, invalidate)
            else:
                record.locate, record.on_restore = locate or (lambda: view), on_restore
            as_integers(view).copy_(as_integers(made))
            self._records.append(record)
            self.held_bytes += record.bytes
            return record.bytes

    def pending(self, lease: Hashable) -> bool:
        """Whether anything of that lease is still to be undone."""
        return any(record.lease == lease for record in self._records)

    def written(self, lease: Hashable) -> int:
        """How many places that lease has overwritten that are not yet undone, those gone since among them."""
        return self._forgotten.get(lease, 0) + sum(record.lease == lease for record in self._records)

    def restore(self, lease: Hashable, since: int = 0) -> Restored:
        """Undo what that lease wrote, the newest first. Again is harmless; one place failing never stops the others.

        ``since``: leave the oldest so many places alone. A place that another lease has overwritten in part since waits
        until that one is undone (``waiting``).
        """
        done, left = Restored(), _Left()
        with self._lock:
            number = self.written(lease)
            if since == 0:
                done = self._early.pop(lease, done)
                self._forgotten.pop(lease, None)
            for record in reversed(self._records):
                number -= record.lease == lease
                if record.lease != lease or number < since:
                    left.add(record)
                elif left.covers(record):
                    done.waiting = True
                    left.add(record)
                else:
                    self._undo(record, done)
            self._records = left.records[::-1]
        return done

    def _forget_gone(self) -> int:
        """Let go of what was saved of places that are gone, as with a request's own cache; how many bytes that were."""
        gone: list[_Record] = []
        left: list[_Record] = []
        for record in self._records:
            (gone if record.saved is not None and _is_gone(record) else left).append(record)
        self._records = left
        for record in gone:
            self._undo(record, self._early.setdefault(record.lease, Restored()))
            self._forgotten[record.lease] = self._forgotten.get(record.lease, 0) + 1
        return sum(record.bytes for record in gone)

    def _undo(self, record: _Record, done: Restored) -> None:
        self.held_bytes -= record.bytes
        done.saved_bytes += record.bytes
        try:
            if record.invalidate is not None:
                done.invalidated_blocks += record.invalidate()
                return
            restored, skipped = _put_back(record)
            done.restored_elements += restored
            done.skipped_elements += skipped
            if record.on_restore is not None:
                record.on_restore(restored, skipped)
        except Exception as error:  # adapters' callbacks may raise anything; the other places must still be undone
            done.reason = done.reason or f"a place could not be put back: {type(error).__name__}: {error}"
            logger.error("an undo failed: %s", type(error).__name__)

    def _saved(self, view: Any, made: Any, lease: Hashable, room: int) -> _Record | None:
        """A record of what stands there and what shall; None where that is more than ``room`` bytes."""
        size = view.element_size()
        old, wrote = as_integers(view), as_integers(made)
        changed = old != wrote
        count = int(changed.sum())
        if count * _SPARSE_BELOW <= view.numel() and count * (8 + 2 * size) <= room:
            at = changed.reshape(-1).nonzero().squeeze(1)
            kept = old.reshape(-1)[at], wrote.reshape(-1)[at]
            return _Record(lease, _gone, at, *kept, count * (8 + 2 * size), None, None, tuple(view.shape))
        whole = 2 * view.numel() * size
        if whole > room:
            return None
        return _Record(lease, _gone, None, old.clone(), wrote.clone(), whole, None, None, tuple(view.shape))


def _gone() -> None:
    """The place of a record that has none."""


def _is_gone(record: _Record) -> bool:
    try:
        return record.locate() is None
    except Exception:  # what locate raises is reported when the record itself is undone
        return False


def as_integers(tensor: Any) -> Any:
    """The same memory as integers of the element's size (1, 2, 4 or 8 bytes), whatever the strides.

    Raises ValueError naming a dtype of another size.
    """
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds.get(tensor.element_size())
    if kind is None:
        raise ValueError(f"a tensor of {tensor.dtype} cannot be undone; elements of 1, 2, 4 or 8 bytes can")
    return tensor.view(kind)


def _fitting(view: Any, new: Any) -> Any:
    """``new`` in the view's dtype and device, apart from its memory."""
    if tuple(view.shape) != tuple(new.shape):
        raise ValueError(f"write: a tensor of shape {tuple(new.shape)} was given for a place of {tuple(view.shape)}")
    if new is view:
        raise ValueError("write: the view itself was given; change a copy and hand that over")
    made = new.detach().to(device=view.device, dtype=view.dtype)
    shared = made.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    return made.clone() if shared else made


def _put_back(record: _Record) -> tuple[int, int]:
    """(elements restored, elements left alone). Works for views of any stride."""
    place = record.locate()
    changed = None if record.at is not None else record.saved != record.wrote
    if place is None:
        return 0, len(record.at) if changed is None else int(changed.sum())
    now = as_integers(place)
    if tuple(now.shape) != record.shape:
        raise ChaosMMError(f"the place has shape {tuple(now.shape)} now; {record.shape} was written")
    if changed is None:
        return _put_back_some(record, now)
    ours = (now == record.wrote) & changed
    now[ours] = record.saved[ours]
    count = int(ours.sum())
    return count, int(changed.sum()) - count


def _put_back_some(record: _Record, now: Any) -> tuple[int, int]:
    import torch

    where = torch.unravel_index(record.at, tuple(now.shape))
    ours = now[where] == record.wrote
    now[tuple(axis[ours] for axis in where)] = record.saved[ours]
    count = int(ours.sum())
    return count, len(record.at) - count


def _span(record: _Record) -> tuple[int, int] | None:
    """First and one past the last byte of the memory it lies in now; None where it is gone or cannot be found."""
    try:
        place = record.locate()
    except Exception:  # what locate raises is reported when the record itself is undone
        return None
    if place is None or place.numel() == 0:
        return None
    last = sum((size - 1) * step for size, step in zip(place.shape, place.stride(), strict=True))
    return place.data_ptr(), place.data_ptr() + (last + 1) * place.element_size()


def _overlap(mine: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and mine[0] < other[1] and other[0] < mine[1]
