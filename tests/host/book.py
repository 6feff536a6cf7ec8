"""A lease book over one hold fault and the host's real things, in this process; and processes to do them to."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos_mm.control.holds import Holds, Kind
from chaos_mm.core.fault import Fault, Point
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.core.undo import UndoLog
from chaos_mm.host.command import KINDS

SLEEPER = "import time\nwhile True: time.sleep(0.01)"
COUNTER = """
import pathlib, sys, time
count, path = 0, pathlib.Path(sys.argv[1])
while True:
    count += 1
    path.write_text(str(count))
    time.sleep(0.01)
"""
LISTENER = """
import http.server, sys
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever(0.05)
"""


def opened(fault: Fault, folder: Path, kinds: Mapping[type, Kind] = KINDS) -> tuple[LeaseBook, Holds, UndoLog]:
    """A host's book that knows this one fault."""
    folder.chmod(0o700)
    log = UndoLog(folder / "undo")
    holds = Holds(kinds, log)
    limits = Limits(allow_live=True, max_rate=1.0)
    return LeaseBook({fault.name: fault}, point=Point.HOST, limits=limits, actuator=holds), holds, log


def body(fault: Fault, **params: Any) -> dict[str, Any]:
    """A lease of it."""
    return {"owner": "run-1", "fault": fault.name, "params": params, "ttl_seconds": 600, "keepalive_seconds": 300}


@contextmanager
def held(fault: Fault, folder: Path, kinds: Mapping[type, Kind] = KINDS, **params: Any) -> Iterator[Lease]:
    """The fault at work; after the block its lease has ended and its thread is through."""
    book, holds, _ = opened(fault, folder, kinds)
    lease = book.put("held", body(fault, **params))
    try:
        wait_for(lambda: lease.applied or lease.errored, "the hold stands", 45.0)
        yield lease
    finally:
        book.close()
        assert holds.wait(20.0)


@contextmanager
def started(code: str, *arguments: object, **how: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """A Python process, killed and reaped in the end."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def state(pid: int) -> str:
    """The letter of /proc/PID/stat; "" when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_for(holds: Callable[[], Any], what: str, seconds: float = 15.0) -> None:
    """Poll until it holds; AssertionError naming ``what`` when that takes too long."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.01)
