"""`chaos-mm proxy`: run the fault proxy before a model server, until SIGTERM or SIGINT."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np

from chaos_mm.control.messages import Route
from chaos_mm.control.point import PointSettings, announce, control_options, start_control
from chaos_mm.core.canary import canary_key
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.core.fault import Fault, Point, Target
from chaos_mm.core.injector import Injector
from chaos_mm.core.media import Audio, Image
from chaos_mm.core.rng import Rng
from chaos_mm.faults import catalogue
from chaos_mm.proxy.connection import Upstream
from chaos_mm.proxy.held import Budget
from chaos_mm.proxy.matching import Matcher
from chaos_mm.proxy.media.image import ignore_pillow_size_warning
from chaos_mm.proxy.media.pixels import keep_blocks
from chaos_mm.proxy.metrics import Metrics
from chaos_mm.proxy.policy import Limits, OnUndecodable
from chaos_mm.proxy.rewrite import Rewriter
from chaos_mm.proxy.sample_route import samples_route
from chaos_mm.proxy.samples import Samples
from chaos_mm.proxy.server import ProxyServer, upstream_at

logger = logging.getLogger("chaos_mm.proxy")
TARGETS: Final = frozenset({Target.IMAGE, Target.AUDIO, Target.TEXT})
_GRACE_SECONDS: Final = 2.0
_EXPIRE_EVERY_SECONDS: Final = 60.0
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What the data side needs beside the control options."""

    upstream: str
    host: str = "127.0.0.1"
    port: int = 8601
    preserve_host: bool = False
    connect_seconds: float = 10.0
    on_undecodable: OnUndecodable = "pass"
    limits: Limits = Limits()
    workers: int = 0
    measure_every: int = 10


@click.command("proxy")
@click.option("--upstream", required=True, help="The model server, http://host:port or https://host:port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8601, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--preserve-host", is_flag=True, help="Pass the client's Host on instead of the upstream's own name.")
@click.option("--connect-timeout", default=10.0, show_default=True, type=click.FloatRange(0.1, 300), help="Seconds.")
@click.option(
    "--on-undecodable",
    type=click.Choice(["pass", "refuse"]),
    default="pass",
    show_default=True,
    help="Broken, oversized or unknown media in a request that a lease selects: forward untouched, or answer 4xx.",
)
@click.option("--max-body-bytes", default=64 * _MIB, show_default=True, type=click.IntRange(1024), help="One body.")
@click.option("--max-held-bytes", default=512 * _MIB, show_default=True, type=click.IntRange(1024), help="All bodies.")
@click.option("--max-pixels", default=50_000_000, show_default=True, type=click.IntRange(1, 178_000_000))
@click.option("--max-audio-seconds", default=600.0, show_default=True, type=click.FloatRange(0.1, 86400))
@click.option("--workers", default=0, type=click.IntRange(0, 256), help="Decoding threads; 0 is one a core.")
@click.option(
    "--measure-every", default=10, show_default=True, type=click.IntRange(1), help="Live requests per measured one."
)
@control_options(default_port=8602)
def command(control: PointSettings, **values: Any) -> None:
    """Run the fault proxy between clients and a model server.

    Without a live lease every byte passes as it came. Leases are put at the control API, by `chaos run`.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    limits = Limits(
        *(values.pop(name) for name in ("max_body_bytes", "max_held_bytes", "max_pixels", "max_audio_seconds"))
    )
    settings = ProxySettings(limits=limits, connect_seconds=values.pop("connect_timeout"), **values)
    try:
        asyncio.run(run(settings, control))
    except ChaosMMError as error:
        raise click.ClickException(str(error)) from error


async def run(settings: ProxySettings, control: PointSettings, stop: asyncio.Event | None = None) -> None:
    """Serve until a signal, or until `stop` is set. Raises ChaosMMError when an address cannot be used."""
    ending = stop or asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    to = upstream_at(settings.upstream, preserve_host=settings.preserve_host, connect_seconds=settings.connect_seconds)
    metrics = Metrics()
    samples, routes = sampling(settings.limits, metrics)
    point = start_control(control, Point.PROXY, catalogue(), TARGETS, routes=routes, metrics=metrics.text)
    expiring = asyncio.create_task(_expire(samples))
    workers = settings.workers or os.cpu_count() or 1
    pool = ThreadPoolExecutor(workers, thread_name_prefix="chaos-mm-media")
    try:
        await asyncio.get_running_loop().run_in_executor(pool, warm_up, point.book.catalogue)
        server = proxy_server(settings, to, point.injector, point.token, metrics, pool, samples)
        await server.start(settings.host, settings.port)
        announce("proxy", server.url, point.server.url)
        await ending.wait()
        await server.stop(_GRACE_SECONDS)
    finally:
        expiring.cancel()
        pool.shutdown(wait=False, cancel_futures=True)
        point.close()


async def _expire(samples: Samples) -> None:
    while True:
        await asyncio.sleep(_EXPIRE_EVERY_SECONDS)
        samples.expire()


def sampling(limits: Limits, metrics: Metrics) -> tuple[Samples, tuple[Route, ...]]:
    """Where canaries' samples are kept, and the control API's route to them."""

    def count(outcome: str) -> None:
        metrics.samples.labels(outcome).inc()

    samples = Samples(count)
    return samples, (samples_route(samples, limits, count),)


def warm_up(faults: Mapping[str, Fault]) -> None:
    """Run each fault once on next to nothing, so that no request pays for the libraries and tables it loads."""
    values = {
        Target.IMAGE: Image(np.zeros((8, 8, 3), np.uint8), "RGB"),
        Target.AUDIO: Audio(np.zeros((1024, 1), np.float32), 16000),
        Target.TEXT: "one two three",
    }
    for fault in faults.values():
        if fault.target in values:
            try:
                fault.apply(values[fault.target], Rng(bytes(32)), **fault.bind({}))
            except Exception as error:  # a third party's fault, or a missing extra, must not keep the proxy down
                logger.warning("the fault %s does not run here: %s", fault.name, error)


def proxy_server(
    settings: ProxySettings,
    to: Upstream,
    injector: Injector,
    token: str,
    metrics: Metrics,
    pool: ThreadPoolExecutor,
    samples: Samples,
) -> ProxyServer:
    """The data side, not yet listening; the token is what canaries are known by."""
    keep_blocks()
    ignore_pillow_size_warning()
    rewriter = Rewriter(
        injector,
        settings.limits,
        settings.on_undecodable,
        lambda reason: metrics.undecodable.labels(reason).inc(),
        samples,
        settings.measure_every,
    )
    budget = Budget(settings.limits.max_held_bytes)
    metrics.held_bytes.set_function(lambda: budget.held)
    matcher = Matcher(
        injector,
        canary_key(token),
        settings.limits,
        settings.on_undecodable,
        rewriter,
        pool,
        metrics,
        budget,
    )
    return ProxyServer(to, matcher, metrics)
