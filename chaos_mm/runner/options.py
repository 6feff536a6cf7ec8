"""The options a command line gave, as words again: what a child ``chaos run`` is started with."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["ONE_FILE", "given", "of_the_group", "refuse_one_file", "toolkit"]

ONE_FILE = ("journal_path", "events_file")
_NOT_HANDED_ON = ("change_dir", "log_file", "no_version_check")  # done here already, or said below


def given(command: click.Command, ctx: click.Context, arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each option that stands in ``arguments``, by its name: the words that say it again, before any conversion."""
    values, _, _ = command.make_parser(ctx).parse_args(list(arguments))
    options = [one for one in command.params if isinstance(one, click.Option) and one.name in values]
    return {str(one.name): _words(one, values[one.name]) for one in options}


def of_the_group(ctx: click.Context) -> tuple[str, ...]:
    """The options before ``run``: ``--verbose``, ``--settings``, … The log goes to the same file from any folder."""
    words: list[str] = ["--no-version-check"]
    for option in ctx.command.params:
        name = str(option.name)
        set_here = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and set_here and name not in _NOT_HANDED_ON:
            words += _words(option, ctx.params[name])
    return (*words, *_log_file())


def refuse_one_file(found: Mapping[str, Sequence[str]], sources: int) -> None:
    """Raise UsageError for what cannot be shared: one output file, or the one document of ``--output agent``."""
    if sources < 2:
        return
    for name in ONE_FILE:
        if name in found:
            option = found[name][0].partition("=")[0]
            raise click.UsageError(
                f"{option} names one file, and there are {sources} sources; each run's journal stands in its own folder"
            )
    if any(word.endswith("=agent") for word in found.get("output_format", ())):
        raise click.UsageError(f"--output agent writes one document, and there are {sources} sources")


def toolkit() -> list[str]:
    """The command that is ``chaos`` here. Started as a program it does not look for modules in the working folder;
    started by ``python -m`` it does, and so do its children."""
    main = sys.modules.get("__main__")
    by_module = getattr(main, "__spec__", None) is not None and not sys.flags.safe_path
    return [sys.executable, *([] if by_module else ["-P"]), "-m", "chaostoolkit"]


def _words(option: click.Option, value: Any) -> tuple[str, ...]:
    name = max(option.opts, key=len)
    if option.is_flag:
        return (name,) if value else tuple(option.secondary_opts[:1])
    values = value if option.multiple else [value]
    return tuple(f"{name}={one}" for one in values)


def _log_file() -> list[str]:
    files = [h.baseFilename for h in logging.getLogger("chaostoolkit").handlers if isinstance(h, logging.FileHandler)]
    return [f"--log-file={files[0]}"] if files else []
