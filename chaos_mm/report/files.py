"""Reading what stands in a folder that anybody may have filled: plain files only, never more than was asked for."""

import errno
import os
import stat
from pathlib import Path

__all__ = ["plain_bytes"]


def plain_bytes(path: Path, most: int) -> bytes:
    """The first ``most`` bytes of a plain file.

    Raises OSError, for a link, a pipe, a socket or a device too: a link may lead out of the folder, and a pipe that
    nobody writes to would be read for ever.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and only plain files are read", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    with os.fdopen(handle, "rb") as file:
        return file.read(most)
