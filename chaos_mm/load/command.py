"""``chaos-mm load``: the load as a process of its own."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from chaos_mm import faults
from chaos_mm.control.point import ControlPoint, PointSettings, announce, control_options, start_control
from chaos_mm.core.canary import canary_key, new_run_id
from chaos_mm.core.fault import Point, Target
from chaos_mm.load.canaries import CanaryMaker
from chaos_mm.load.client import HttpTransport, Service
from chaos_mm.load.generator import Counters, Generator, Sending
from chaos_mm.load.judging import make_judge
from chaos_mm.load.marks import Marks
from chaos_mm.load.options import canary_settings, load_options, traffic_settings
from chaos_mm.load.routes import LoadRoutes
from chaos_mm.load.store import Store
from chaos_mm.load.traffic import TrafficBook
from chaos_mm.load.view import View

_LOOK_SECONDS = 2.0


@click.command("load")
@control_options(8605)
@load_options
def command(control: PointSettings, **values: Any) -> None:
    """Send canaries and bystanders through the proxy, and serve records and SLIs."""
    LoadProcess(control, values).run()


class LoadProcess:
    """The parts of one load, wired. Raises ChaosMMError when an option or the control port is bad."""

    def __init__(self, control: PointSettings, values: Mapping[str, Any]) -> None:
        self._control, self._values = control, values
        self._session = new_run_id()
        reference = values["canary_reference"]
        set_size = values["canary_set"] if reference == "baseline" else 0
        name = "set" if set_size else self._session  # the fixed set is the same in every session
        self._maker = CanaryMaker(canary_settings(values), values["seed"], name, set_size)
        self._judge = make_judge(reference)
        spec, limits = traffic_settings(values)
        self._traffic = TrafficBook(spec, limits)
        if values["background_rate"]:
            self._traffic.background(spec)
        file = values["records_file"]
        self._store = Store(values["max_records"], values["max_record_bytes"], Path(file) if file else None)
        self._marks = Marks()
        self._counters = Counters()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        view = View(self._store, self._marks, self._values["objectives_dir"])
        parts = (self._session, self._store, self._marks, self._traffic, view, self._counters)
        own = LoadRoutes(*parts, model=self._values["model"])
        point = start_control(
            self._control,
            Point.LOAD,
            faults.catalogue(),
            frozenset({Target.TRAFFIC}),
            routes=own.routes(),
            metrics=own.metrics,
        )
        try:
            asyncio.run(self._generate(point))
        finally:
            point.close()
            self._store.close()

    async def _generate(self, point: ControlPoint) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        async with HttpTransport(self._service()) as transport:
            generator = Generator(
                self._sending(point.token),
                transport,
                self._maker,
                self._judge,
                self._traffic,
                self._store,
                self._marks,
                self._counters,
            )
            announce("load", self._values["url"], point.server.url)
            try:
                await _look_at_proxy(self._values["url"])
                await generator.run()
            except asyncio.CancelledError:
                task.uncancel()  # the signal did this: an orderly end, not an error

    def _service(self) -> Service:
        values = self._values
        key = os.environ.get("CHAOS_MM_TARGET_API_KEY", "")
        return Service(values["url"], values["model"], values["stream"], values["max_tokens"], api_key=key)

    def _sending(self, token: str) -> Sending:
        values = self._values
        limits = {"timeout_seconds": values["timeout"], "max_in_flight": values["max_in_flight"]}
        return Sending(self._session, canary_key(token), self._service(), values["seed"], **limits)


async def _look_at_proxy(url: str) -> None:
    """Say so where nobody listens: each request would be a miss, and nothing else would tell why."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except OSError as error:  # a timeout is one, too
        why = error.strerror or "no answer"
        at = f"{parts.hostname}:{port}"
        click.echo(
            f"chaos-mm load: nobody answers at {at} ({why}); every request is a miss until somebody does", err=True
        )
