"""``chaos-mm agent run -- COMMAND``: a Python model server with the agent in its process, its code untouched."""

import logging
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from chaos_mm.agent.control import DEFAULT_URL, enabled
from chaos_mm.core.errors import ChaosMMError

__all__ = ["command", "program"]


@click.group("agent")
def command() -> None:
    """Faults inside a model server's own process."""


@command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--control-url", default="", help=f"Control address, http://... or unix:///path [{DEFAULT_URL}].")
@click.option("--token-file", type=click.Path(path_type=Path), help="Token file [env CHAOS_MM_TOKEN_FILE].")
@click.option("--allow-live", is_flag=True, help="Let leases hurt users' requests, and what no selector picks.")
@click.option("--max-rate", default=None, type=click.FloatRange(0, 1), help="Cap on the share of users' requests.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    control_url: str, token_file: Path | None, allow_live: bool, max_rate: float | None, words: tuple[str, ...]
) -> None:
    """Run COMMAND, a Python server of Hugging Face models, with the agent in it, disarmed.

    COMMAND is a console script (transformers serve ...), python -m MODULE ..., or SCRIPT.py ...; it runs in this very
    process. A server that calls chaos_mm.core.serving is met too. The control address is printed on stderr.
    """
    given = {
        "CHAOS_MM_AGENT": "1",
        "CHAOS_MM_AGENT_CONTROL_URL": control_url,
        "CHAOS_MM_TOKEN_FILE": str(token_file or ""),
        "CHAOS_MM_AGENT_ALLOW_LIVE": "1" if allow_live else "",
        "CHAOS_MM_AGENT_MAX_RATE": "" if max_rate is None else f"{max_rate:g}",
    }
    os.environ.update({name: value for name, value in given.items() if value})
    _log_to_stderr()
    try:
        start = program(words)
        why = enabled()
        if why:
            raise ChaosMMError(f"the agent cannot work: {why}")
        _prepare(words)
    except ChaosMMError as error:
        raise click.ClickException(str(error)) from error
    start()


def program(words: Sequence[str]) -> Callable[[], object]:
    """What runs the command in this process; it sets ``sys.argv`` first. Raises ChaosMMError for no Python program."""
    name, rest = words[0], list(words[1:])
    if Path(name).name.startswith("python"):
        return _python(rest)
    if name.endswith(".py"):
        return _script(name, rest)
    return _console_script(name, rest)


def _python(rest: list[str]) -> Callable[[], object]:
    if len(rest) > 1 and rest[0] == "-m":
        here = str(Path.cwd())
        return lambda: _as_main(rest[1:], lambda: runpy.run_module(rest[1], run_name="__main__", alter_sys=True), here)
    if rest and rest[0].endswith(".py"):
        return _script(rest[0], rest[1:])
    raise ChaosMMError(f"python {' '.join(rest)[:80]}: only 'python -m MODULE ...' and 'python SCRIPT.py ...' are run")


def _script(path: str, rest: list[str]) -> Callable[[], object]:
    if not Path(path).is_file():
        raise ChaosMMError(f"{path} is no file")
    folder = str(Path(path).resolve().parent)
    return lambda: _as_main([path, *rest], lambda: runpy.run_path(path, run_name="__main__"), folder)


def _console_script(name: str, rest: list[str]) -> Callable[[], object]:
    from importlib.metadata import entry_points

    found = list(entry_points(group="console_scripts", name=Path(name).name))
    if not found:
        where = "is not a console script of this Python" if shutil.which(name) else "was not found"
        raise ChaosMMError(f"{name} {where}; only Python programs of {sys.executable} can hold the agent")
    return lambda: _as_main([shutil.which(name) or name, *rest], lambda: sys.exit(found[0].load()()))


def _as_main(argv: list[str], start: Callable[[], object], folder: str = "") -> object:
    sys.argv = argv
    if folder:  # as python -m and python SCRIPT.py do
        sys.path.insert(0, folder)
    return start()


def _prepare(words: Sequence[str]) -> None:
    from chaos_mm.agent.transformers.launch import Launch

    shown = [Path(words[0]).name, *words[1:]]
    Launch(" ".join(word for word in shown[:3] if not word.startswith(("-", "/")))[:80]).prepare()


def _log_to_stderr() -> None:
    """Our own lines, whatever the server does with logging; a server that sets up its own gets them as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger("chaos_mm").addHandler(handler)
