"""`chaos-mm host`: hold memory, or pause and kill processes, beside the engine, until SIGTERM or SIGINT."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import click

from chaos_mm.control.holds import Holds, Kind
from chaos_mm.control.messages import Request, Response, Route
from chaos_mm.control.point import ControlPoint, PointSettings, announce, control_options, start_control
from chaos_mm.control.state import state_dir
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Point, Target
from chaos_mm.core.host import GpuMemory, HostMemory, Processes
from chaos_mm.core.undo import UndoLog
from chaos_mm.faults import catalogue
from chaos_mm.host import gpu, nvml
from chaos_mm.host.available import available_bytes, groups, meminfo_bytes
from chaos_mm.host.holding import kill_holder
from chaos_mm.host.memory import MachineMemory, lift_cap
from chaos_mm.host.processes import HostProcesses, resume_paused
from chaos_mm.host.sweeping import own_log

__all__ = ["KINDS", "command", "host_facts", "run"]

logger = logging.getLogger("chaos_mm.host")
TARGETS = frozenset({Target.MEMORY, Target.PROCESS})
KINDS: Mapping[type, Kind] = {
    HostMemory: Kind(MachineMemory),
    GpuMemory: Kind(gpu.DeviceMemory, gpu.refusal),
    Processes: Kind(HostProcesses),
}
_UNDOERS = {"resume": resume_paused, "limit": lift_cap, "holder": kill_holder}
_LOOK_SECONDS = 0.2
_UNDO_SECONDS = 20.0


@click.command("host")
@control_options(default_port=8604)
def command(control: PointSettings) -> None:
    """Run the host point beside an engine.

    What it does hits every request, so it takes leases only with --allow-live --max-rate 1. When whoever started it
    dies, every lease ends; when it is killed itself, what it held is let go all the same.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        run(control, stop)
    except ChaosMMError as error:
        raise click.ClickException(str(error)) from error


def run(control: PointSettings, stop: threading.Event, parent: Callable[[], int] = os.getppid) -> None:
    """Serve until ``stop``: sweep what a dead host left, then take leases. Raises ChaosMMError.

    ``parent``: the id of whoever started this process; once it changes, every lease ends.
    """
    log = own_log(state_dir(), _UNDOERS)
    holds = Holds(KINDS, log)

    def look(request: Request) -> Response:
        return Response.json(host_facts(point.book.live, log))

    routes = (Route("GET", "/host", look),)
    point: ControlPoint = start_control(control, Point.HOST, catalogue(), TARGETS, routes=routes, actuator=holds)
    try:
        announce("host", "", point.server.url)
        _watch_parent(point, stop, parent)
    finally:
        point.close()
        if not holds.wait(_UNDO_SECONDS):
            logger.error(
                "some holds are not undone after %g s; their records are left for the next start", _UNDO_SECONDS
            )


def host_facts(live: Any, log: UndoLog) -> dict[str, Any]:
    """Memory of machine and devices, live holds and undo records: ``GET /host``; absent facts are null."""
    pending, unreadable = log.pending()
    return {
        "memory": {
            "available_bytes": available_bytes(),
            "total_bytes": meminfo_bytes("MemTotal"),
            "group_available_bytes": min(groups().values(), default=None),
        },
        "devices": _devices(),
        "no_device_reason": nvml.absence(),
        "live_holds": len(live),
        "pending_undo": len(pending) + len(unreadable),
    }


def _devices() -> list[dict[str, Any]]:
    found = [] if nvml.absence() else [nvml.facts(index) for index in range(nvml.devices())]
    return [
        {"index": one.index, "name": one.name, "used_bytes": one.used_bytes, "free_bytes": one.free_bytes,
         "total_bytes": one.total_bytes, "mig": one.mig, "pids": list(one.pids)}
        for one in found
    ]  # fmt: skip


def _watch_parent(point: ControlPoint, stop: threading.Event, parent: Callable[[], int]) -> None:
    began = parent()
    while not stop.wait(_LOOK_SECONDS):
        now = parent()
        if now != began:
            began = now
            logger.warning("whoever started this host is gone: every lease ends")
            point.book.close()
