"""Free ports for what must be told its port beforehand."""

import os
import socket

FIRST, LAST, STEP = 61000, 65000, 10  # above the range that the system hands out by itself


def free_ports(count: int) -> int:
    """The first of ``count`` neighbouring loopback ports that nobody listens on now; other processes look elsewhere."""
    places = (LAST - FIRST) // STEP
    for place in range(places):
        base = FIRST + (os.getpid() * 7 + place) % places * STEP
        if all(_free(base + offset) for offset in range(count)):
            return base
    raise AssertionError(f"no {count} free ports beside each other")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
