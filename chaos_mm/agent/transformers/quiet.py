"""The moments at which no thread computes a batch: what the agent's watcher waits for before it puts bytes back."""

import threading
from contextlib import ExitStack

__all__ = ["Quiet"]


class Quiet:
    """Batches hold it together, the watcher alone; it has a lock's ``acquire`` and ``release`` for the watcher.

    The watcher writes to tensors that were made under torch's inference mode, which only that mode allows; so it is
    entered with the lock.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._batches = 0
        self._watching = False
        self._mode = ExitStack()

    def enter(self) -> None:
        """A batch begins; waits while the watcher is at work (milliseconds)."""
        with self._condition:
            self._condition.wait_for(lambda: not self._watching)
            self._batches += 1

    def leave(self) -> None:
        """A batch has ended."""
        with self._condition:
            self._batches -= 1

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Be alone; False at once where a batch is computed."""
        with self._condition:
            if self._batches or self._watching:
                return False
            self._watching = True
        try:
            import torch

            self._mode.enter_context(torch.inference_mode())
        except BaseException:  # such as no memory: batches must not wait for a watcher that is not there
            self._end_watching()
            raise
        return True

    def release(self) -> None:
        """Let batches begin again."""
        try:
            self._mode.close()
        finally:
            self._end_watching()

    def _end_watching(self) -> None:
        with self._condition:
            self._watching = False
            self._condition.notify_all()

    @property
    def busy(self) -> bool:
        """Whether a batch is computed now."""
        return self._batches > 0
