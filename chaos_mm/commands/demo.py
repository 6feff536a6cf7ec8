"""``chaos-mm demo [up|down|status]``: a live service on this machine, to hurt."""

import shlex
import time

import click

from chaos_mm.commands.tables import aligned
from chaos_mm.core.errors import MissingExtra
from chaos_mm.demo import lifecycle
from chaos_mm.demo.ports import DEFAULT_BASE
from chaos_mm.demo.state import DemoState

__all__ = ["command"]

_base_port = click.option(
    "--base-port",
    default=DEFAULT_BASE,
    show_default=True,
    type=click.IntRange(1024, 65530),
    help="The first of its ports; five more follow.",
)


@click.group(invoke_without_command=True)
@_base_port
@click.pass_context
def command(ctx: click.Context, base_port: int) -> None:
    """Run the whole demo: bring everything up, run the experiments, bring everything down, show a report.

    Three faults that the demo's model takes well, and one at a dose that it cannot: that one is expected to deviate.
    Exit status 0 when each run ended as expected. Reports go to ./reports (CHAOS_MM_REPORTS).

    With `up` only the first step, so that you can experiment yourself: eval "$(chaos-mm demo up)"
    """
    ctx.obj = base_port
    if ctx.invoked_subcommand is None:
        from chaos_mm.demo.experiments import run_all

        _check_extras()
        ctx.exit(run_all(base_port, click.echo))


@command.command()
@_base_port
@click.pass_obj
def up(outer_base_port: int, base_port: int) -> None:
    """Start everything in the background; print the `export` lines that point experiments at it."""
    _check_extras()
    base = base_port if base_port != DEFAULT_BASE else outer_base_port
    _say("Bringing the demo up: target, proxy, host point and load ...")
    demo = lifecycle.up(base, _say)
    for name, value in demo.state.exports.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    _say(f"The demo is up. Logs: {lifecycle.logs_dir()}. Next: chaos-mm init DIR, or: chaos-mm demo down")


@command.command()
def down() -> None:
    """Stop everything that `up` started."""
    _say("The demo is down." if lifecycle.down(_say) else "The demo is not up; there is nothing to bring down.")


@command.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show the demo's processes. Exit status: 0 all up, 1 not up or not whole."""
    state = lifecycle.read()
    if state is None:
        _say("The demo is not up. Start it with: chaos-mm demo up")
        ctx.exit(1)
    click.echo(_table(state))
    if not state.supervised:
        why = state.reason or "its supervisor was killed, and its processes died with it"
        _say(f"The demo is not running: {why}\nclean up with: chaos-mm demo down")
    whole = state.supervised and state.state == "up" and all(s.state == "up" for s in state.services)
    ctx.exit(0 if whole else 1)


def _table(state: DemoState) -> str:
    rows = [
        (s.name, s.state if state.supervised else "gone", s.pid, s.url, s.restarts, _back(s.last_exit, s.down_seconds))
        for s in state.services
    ]
    head = f"supervisor {state.pid}, {state.state} for {time.time() - state.started_at:.0f} s"
    return head + "\n" + aligned(("process", "state", "pid", "address", "restarts", "last end"), rows)


def _back(last_exit: str, down_seconds: float) -> str:
    if not last_exit:
        return "-"
    return f"{last_exit}, back in {down_seconds:g} s" if down_seconds else last_exit


def _check_extras() -> None:
    """Say at once what is missing, not from a log a minute later."""
    from importlib.util import find_spec

    for module in ("torch", "transformers", "aiohttp", "PIL", "soundfile", "librosa"):
        if find_spec(module) is None:
            raise MissingExtra.of(module, "demo")


def _say(text: str) -> None:
    """Words for a person; stdout is for the shell that evaluates it."""
    click.echo(text, err=True)
