"""The Chaos Toolkit plugin: ``chaos run SOURCE...`` and ``chaos gameday run SOURCE...``.

It takes the place of the toolkit's own ``run``, for everyone who has it installed, so it must never fail to import and
must leave experiments that are not ours alone: at the top it imports click and the toolkit only; a single source goes
to the original command in the same context, with no frame of ours on the stack; and of a file that does not name us
nothing of ours looks at more than the bytes. (Its entry points are not called ``run``: were this module missing, the
toolkit would put a broken command of that name in place of its own.)
"""

import copy
import logging
import re
from pathlib import Path
from typing import Any

import click
from chaostoolkit.commands.run import run as original

__all__ = ["gameday", "run"]

logger = logging.getLogger("chaostoolkit")
_ARGUMENTS = "chaos_mm.chaos_cli.arguments"
_PROVIDER = re.compile(rb"module\W+chaos_mm\b")
_ERROR_EXIT = 4


class _Sources:
    """Of a command that takes sources: keeps the words it was called with, to hand them on to the runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ``click.Command.parse_args``."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return rest


class _OneOrMore(_Sources):
    """Of ``run``: one source is the original command's affair."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ``click.Command.parse_args``. Exits with 4 when the one source is ours and may not run."""
        rest = super().parse_args(ctx, args)
        if len(ctx.params.get("source") or ()) == 1:
            ctx.params["source"] = ctx.params["source"][0]
            ctx.command = original
            _look_at(ctx, ctx.params["source"])
        return rest


def _derived(kind: type, callback: Any, *more: click.Parameter) -> click.Command:
    """The toolkit's ``run``, whatever options its version has, with ``SOURCE...`` for ``SOURCE``."""
    made: click.Command = copy.copy(original)
    made.__class__ = type("Run", (kind, type(original)), {})
    many = click.Argument(["source"], nargs=-1, required=True)
    made.params = [*more, *(many if parameter.name == "source" else parameter for parameter in original.params)]
    made.callback = click.pass_context(callback)
    return made


def _takes_one_source() -> bool:
    """Whether the toolkit's command is what we know; a future one that is not stays as it is."""
    found = [parameter for parameter in getattr(original, "params", ()) if parameter.name == "source"]
    return isinstance(original, click.Command) and len(found) == 1 and found[0].nargs == 1


def _look_at(ctx: click.Context, source: str) -> None:
    """Have an experiment of ours watched, or refused."""
    fetched = source.startswith(("http://", "https://"))
    if not fetched and Path(source).is_dir():  # of which the toolkit makes a traceback
        raise click.UsageError(f"{source} is a folder; name the files in it: {source.rstrip('/')}/*.json", ctx)
    if not fetched and b"chaos_mm" not in _content(source):
        return
    try:
        from chaos_mm.runner import single
    except Exception as error:  # a broken installation of ours must not take other people's experiments away
        if not _PROVIDER.search(_content(source)):
            return
        logger.error(f"{source} has parts of chaos_mm, which is broken here: {type(error).__name__}: {error}")
        ctx.exit(_ERROR_EXIT)
    single.look_at(ctx, source)


def _content(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError):
        return b""  # the toolkit says what is wrong with it


def _run(ctx: click.Context, source: tuple[str, ...], **options: Any) -> Any:
    if ctx.command is original:  # called as a program of its own, without the toolkit's group
        return original.invoke(ctx)
    from chaos_mm.runner import command

    ctx.exit(command.several(ctx, source, ctx.meta[_ARGUMENTS]))


def _gameday_run(ctx: click.Context, source: tuple[str, ...], expect: tuple[str, ...], **options: Any) -> None:
    from chaos_mm.runner import command

    ctx.exit(command.gameday(ctx, source, ctx.meta[_ARGUMENTS], expect))


@click.group()
def gameday() -> None:
    """Run experiments one after another, watch them live, and hold them to what is expected of them."""


run: click.Command = original
if _takes_one_source():
    run = _derived(_OneOrMore, _run)
    _expect = click.Option(
        ["--expect"],
        multiple=True,
        metavar="WORD",
        help="The verdict that is expected: once for all sources, or once for each in order. Without it what the "
        "file's control expects, else passed. Exit status 0 when every run ended so.",
    )
    _gameday = _derived(_Sources, _gameday_run, _expect)
    _gameday.help = (
        "Run the experiments loaded from each SOURCE in order, with a live view on a terminal. Options go to each run."
    )
    gameday.add_command(_gameday, "run")
