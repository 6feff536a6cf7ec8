"""Run a command that is killed when its parent dies: ``python -m chaos_mm.demo.tether PARENT_PID COMMAND ARG...``.

Linux keeps the wish across ``exec``, so the command itself needs to know nothing. Elsewhere the command runs untied.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main", "tethered"]

_PR_SET_PDEATHSIG = 1


def tethered(argv: list[str]) -> list[str]:
    """The command line that runs ``argv`` as a child which cannot outlive this process.

    The wish holds for the thread that starts it, so start it from one that lives as long as the process.
    """
    # -P: a file of the user's working folder must not stand in for a library.
    return [sys.executable, "-P", "-m", "chaos_mm.demo.tether", str(os.getpid()), *argv]


def main(parent: int, argv: list[str]) -> None:
    """Tie this process to ``parent`` and become ``argv``."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        if os.getppid() != parent:  # it died before the wish was made
            sys.exit(f"the parent {parent} is gone")
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
