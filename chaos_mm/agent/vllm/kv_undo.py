"""Undo by place: whatever lies under blocks that somebody else is about to use is put back first."""

from collections.abc import Hashable, Iterable
from typing import Any

from chaos_mm.agent.undo import Restored, UndoStore

__all__ = ["BlockUndo"]


class BlockUndo(UndoStore):
    """The store of a worker, whose places are blocks of one big tensor a layer."""

    def restore_under(self, views: Iterable[Any]) -> dict[Hashable, Restored]:
        """Undo every write that lies inside one of ``views``, the newest first; what that came to, by lease."""
        spans = [_extent(view) for view in views]
        done: dict[Hashable, Restored] = {}
        left = []
        with self._lock:
            for record in reversed(self._records):
                place = record.locate()
                if place is not None and any(low <= place.data_ptr() < high for low, high in spans):
                    self._undo(record, done.setdefault(record.lease, Restored()))
                else:
                    left.append(record)
            self._records = left[::-1]
        return done


def _extent(view: Any) -> tuple[int, int]:
    """First and one past the last byte of the memory that it spans."""
    last = sum((size - 1) * step for size, step in zip(view.shape, view.stride(), strict=True))
    return view.data_ptr(), view.data_ptr() + (last + 1) * view.element_size()
