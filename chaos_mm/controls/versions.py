"""What played a run, and the command line that plays it again."""

import json
import os
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

__all__ = ["replay", "versions"]

_PACKAGES = ("chaostoolkit", "chaostoolkit-lib")
# Where this run's output went is no part of the experiment.
_OUTPUTS = frozenset({"journal_path", "events_file", "output", "no_exit"})


def versions() -> dict[str, str]:
    """By name: this package, the toolkit and its library, Python, and the kind of system."""
    from importlib.metadata import PackageNotFoundError, version

    from chaos_mm import __version__

    found = {"chaos_mm": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    system = f"{platform.system()} {platform.machine()}"
    return {**found, "python": platform.python_version(), "platform": system}


def replay(
    scrub: Callable[[str], str], context: "click.Context | None" = None, environment: Mapping[str, str] = os.environ
) -> str:
    """``CHAOS_MM_FAULT_SECONDS=5 chaos run --var sigma:float=0.4 experiments/image-noise.json``, for a POSIX shell.

    What the command line of ``context`` (default: the one under way) gave, without secrets and without the options that
    only say where output goes; before it, what the environment says of lengths and rate. "" outside a command line.
    """
    import click

    context = context or click.get_current_context(silent=True)
    if context is None:
        return ""
    words = [f"{name}={environment[name]}" for name in sorted(environment) if _shapes_a_run(name)]
    words += ["chaos", str(context.info_name)]
    arguments: list[str] = []
    for parameter in context.command.params:
        if parameter.name in _OUTPUTS or not _was_typed(context, parameter.name or ""):
            continue
        value = context.params.get(parameter.name or "")
        if isinstance(parameter, click.Option):
            words += _option(parameter, value)
        else:
            arguments += [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]
    return " ".join(_quoted(scrub(word)) for word in [*words, *arguments])


def _shapes_a_run(name: str) -> bool:
    return name.startswith("CHAOS_MM_") and name.endswith(("_SECONDS", "_LOAD_RATE"))


def _was_typed(context: "click.Context", name: str) -> bool:
    from click.core import ParameterSource

    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _option(option: "click.Option", value: Any) -> Iterator[str]:
    long = max(option.opts, key=len)
    if option.is_flag:
        yield long if value else max([*option.secondary_opts, long], key=len)
        return
    for one in _each(option, value):
        yield from (long, one)


def _each(option: "click.Option", value: Any) -> Iterator[str]:
    """The option's values as they were typed; ``--var`` gives click a mapping of name to typed value."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield _variable(str(name), inner)
    elif option.multiple and isinstance(value, (list, tuple)):
        for inner in value:
            yield str(inner)
    else:
        yield str(value)


def _variable(name: str, value: Any) -> str:
    from chaos_mm.controls.redact import SECRET, holds_by_name

    if holds_by_name(name):
        return f"{name}={SECRET}"
    if isinstance(value, str):
        return f"{name}={value}"
    if isinstance(value, bytes):
        return f"{name}:bytes={value.decode()}"
    kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "json")
    return f"{name}:{kind}={json.dumps(value)}"


def _quoted(word: str) -> str:
    """For a shell; an assignment keeps its name readable."""
    name, sign, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if sign and name.isidentifier() else shlex.quote(word)
