"""A flag that a signal handler may set while the main thread waits on it.

``threading.Event`` is not that: its ``set`` takes a lock that the interrupted ``wait`` of the same thread may hold,
and the process would stand still for ever. A pipe that is written once and never read has no lock.
"""

import os
import select


class StopFlag:
    """Set once, never cleared; any number of threads may wait."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._set = False

    def set(self) -> None:
        """Wake every waiter, now and later. Safe in a signal handler."""
        if not self._set:
            self._set = True
            os.write(self._write, b"s")

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; whether the flag is set."""
        if not self._set and seconds > 0:
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            poll.poll(seconds * 1000.0)
        return self._set

    def __del__(self) -> None:
        os.close(self._read)
        os.close(self._write)
