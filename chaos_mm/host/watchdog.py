"""A tiny process that undoes what a killed host cannot: it outlives the host, puts one thing back, and ends.

``python -I -S watchdog.py JSON``, with ``{"kind": "resume"|"limit", "pid", "start", "boot", "soft"?, "hard"?}``. On
standard input come lines ``until SECONDS`` (CLOCK_MONOTONIC) with each keepalive, and at last ``done``. It acts when
the input ends without ``done``, since then the host is dead, or half a second after the last deadline, since then the
host is stuck. It imports the standard library only and starts in a session of its own, so that what kills the host's
group does not reach it. Acting twice is harmless: the process must be the very one, and is only put back.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main", "put_back"]

GRACE_SECONDS = 0.5


def main(what: dict[str, Any]) -> None:
    """Watch, and put back when nobody else does."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the host ends it; SIGKILL leaves the undo record to the next sweep
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not _told_done():
        put_back(what)


def _told_done() -> bool:
    until, rest = float("inf"), b""
    while (left := until + GRACE_SECONDS - time.monotonic()) > 0:
        if not select.select([0], [], [], min(left, 3600.0))[0]:
            continue
        part = os.read(0, 4096)
        if not part:
            return False
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line == b"done":
                return True
            until = float(line.removeprefix(b"until "))
    return False


def put_back(what: dict[str, Any]) -> bool:
    """Put it back if the process is still the one it was done to; whether it was."""
    pid = int(what["pid"])
    handle = _opened(pid)
    if handle < 0 or not _is_same(what):
        return False
    try:
        if what["kind"] == "limit":
            resource.prlimit(pid, resource.RLIMIT_AS, (int(what["soft"]), int(what["hard"])))
        else:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def _opened(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _is_same(what: dict[str, Any]) -> bool:
    try:
        fields = Path(f"/proc/{int(what['pid'])}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return False
    return int(fields[19]) == int(what["start"]) and boot == what["boot"]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
