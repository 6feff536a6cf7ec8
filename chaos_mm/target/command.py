"""``chaos-mm target``: the demo target as a process of its own."""

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from chaos_mm.control.point import announce
from chaos_mm.core.errors import ChaosMMError

if TYPE_CHECKING:
    from aiohttp import web

SHUTDOWN_SECONDS = 0.5


@click.command("target")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8600, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--model-name", default="chaos-mm-tiny", show_default=True, help="Name to serve the model under.")
@click.option("--standby", is_flag=True, help="Load everything, say so, and listen only after a line on stdin.")
def command(host: str, port: int, model_name: str, standby: bool) -> None:
    """Serve a tiny multimodal model of our own with OpenAI's API, to be hurt."""
    app = load_app(model_name)
    if standby:
        sys.stdout.write(json.dumps({"standby": "target", "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return  # whoever might have wanted us is gone
    asyncio.run(serve(app, host, port))


def load_app(model_name: str) -> "web.Application":
    """Load the model, answer once to warm up, and make the application."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported
    import torch

    from chaos_mm.target import model, warm_up
    from chaos_mm.target.server import TargetServer

    torch.set_num_threads(1)
    loaded = model.load()
    warm_up.answer_once(loaded)
    return TargetServer(loaded, model_name).app


async def serve(app: "web.Application", host: str, port: int) -> None:
    """Listen, say that we are ready, and end on SIGTERM or SIGINT. Raises ChaosMMError when the port is taken."""
    from aiohttp import web

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ChaosMMError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        shown = f"[{host}]" if ":" in host else host
        announce("target", f"http://{shown}:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()
