"""``chaos-mm``: one door to every part. A subcommand's module is imported only when that subcommand is called."""

import difflib
import importlib
import sys
from typing import Any, NamedTuple

import click

from chaos_mm.core.errors import ChaosMMError, MissingExtra

__all__ = ["COMMANDS", "Entry", "main"]


class Entry(NamedTuple):
    """Where a subcommand lives (``module:attribute``), its line in ``--help``, and the extra that it needs."""

    where: str
    summary: str
    extra: str = ""


COMMANDS: dict[str, Entry] = {
    "demo": Entry("chaos_mm.commands.demo:command", "Hurt a tiny real model here, and watch it heal.", "demo"),
    "init": Entry("chaos_mm.commands.init:command", "Write the experiments and objectives to a folder, for editing."),
    "doctor": Entry("chaos_mm.commands.doctor:command", "Say what an experiment needs, what is there, what to type."),
    "lint": Entry("chaos_mm.commands.lint:command", "Hold experiment files to the rules, without running them."),
    "status": Entry("chaos_mm.commands.status:command", "Show every lease at every point; exit 1 when one is armed."),
    "stop": Entry("chaos_mm.commands.stop:command", "Release everything at every point and block new faults."),
    "faults": Entry("chaos_mm.commands.faults:command", "List and explain the faults."),
    "objectives": Entry("chaos_mm.commands.objectives:command", "List the objectives that experiments name."),
    "report": Entry("chaos_mm.commands.report:command", "Render the report of a run, or of all runs, once more."),
    "proxy": Entry("chaos_mm.proxy.command:command", "Run the fault proxy before a model server.", "proxy"),
    "host": Entry("chaos_mm.host.command:command", "Run the host point: memory and processes beside an engine."),
    "agent": Entry("chaos_mm.agent.command:command", "Run a model server with faults inside its process.", "agent"),
    "load": Entry("chaos_mm.load.command:command", "Run the load: canaries, bystanders and their SLIs.", "load"),
    "target": Entry("chaos_mm.target.command:command", "Run the demo target: a tiny multimodal model.", "target"),
    "version": Entry("chaos_mm.commands.version:command", "Print the versions that matter."),
}
_CALLED = "chaos_mm.called"


class _LazyGroup(click.Group):
    """A group that knows its subcommands by name, and turns our errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        ctx.meta[_CALLED] = cmd_name
        return _load(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ChaosMMError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error
        except ModuleNotFoundError as error:  # some import their libraries only when they run
            raise click.ClickException(_missing(error, ctx.meta.get(_CALLED, ""))) from error


def _load(entry: Entry) -> click.Command:
    module, _, attribute = entry.where.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{entry.where} is no click command")
    return command


def _missing(error: ModuleNotFoundError, subcommand: str) -> str:
    """What to install. One of our own modules, or a library that no extra brings, is a bug: its error goes on."""
    module, extra = error.name or "", COMMANDS[subcommand].extra if subcommand in COMMANDS else ""
    if not extra or module.partition(".")[0] in ("", "chaos_mm"):
        raise error
    return str(MissingExtra.of(module, extra))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Break a multimodal LLM service on purpose, and prove that it keeps its SLA or comes back within it.

    Start with `chaos-mm demo`. By hand: `chaos-mm demo up`, `chaos-mm init DIR`, `chaos run DIR/*.json`; live:
    `chaos gameday run FILE`.
    """


if __name__ == "__main__":
    sys.exit(main())
