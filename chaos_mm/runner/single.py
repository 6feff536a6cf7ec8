"""``chaos run`` of one experiment of ours, in this process: refused without our verdict, an error without its record.

The toolkit's own command runs it; what is to be said afterwards is said when that command's context closes. Callbacks
of a context run in reverse order, so the verdict control, which registers its own during the run, has had its say.
"""

import functools
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import click

from chaos_mm.controls import exit_code
from chaos_mm.controls.placed import wrong_environment
from chaos_mm.report.words import EXIT_CODES
from chaos_mm.runner import sources, variables

__all__ = ["look_at"]

logger = logging.getLogger("chaostoolkit")
_ACTIVITIES = ("chaos_mm.actions", "chaos_mm.probes", "chaos_mm.tolerances")


def look_at(ctx: click.Context, given: str) -> None:
    """Before it runs. Exits with 4 when it has activities of ours but not our verdict."""
    try:
        controls = sources.global_controls(ctx.obj["settings_path"], ctx.params.get("control_file") or ())
        source = sources.read(given, controls)
    except sources.BadSource as error:
        if sources.names_us(given):  # of what is no JSON the toolkit makes a traceback and a 1
            logger.error(str(error))
            ctx.exit(EXIT_CODES["error"])
        return  # the toolkit says it in its own words
    if source.refusal:
        logger.error(source.refusal)
        ctx.exit(EXIT_CODES["error"])
    if source.ours and source.experiment is not None:
        _check_environment(ctx, given, source.experiment)
        _check_variables(ctx, source)
    if source.experiment is None:
        ctx.call_on_close(functools.partial(_close_fetched, given, exit_code.recorded(), _loaded()))
    elif source.ours and not sources.reruns(source.experiment):
        ctx.call_on_close(functools.partial(_close, given, exit_code.recorded()))


def _check_environment(ctx: click.Context, given: str, experiment: Mapping[str, Any]) -> None:
    """The toolkit validates with what the environment holds, whatever ``--var`` says, and crashes on ``abc`` for a
    float before any control is loaded; said in a sentence instead."""
    wrong = wrong_environment(experiment, os.environ)
    if wrong and not ctx.params.get("no_validation"):
        logger.error(f"{given}: {'; '.join(wrong)}, so nothing was run")
        ctx.exit(EXIT_CODES["error"])


def _check_variables(ctx: click.Context, source: sources.Source) -> None:
    """A misspelt ``--var`` would test another dose than was asked for."""
    wrong = variables.unknown(ctx.params.get("var") or (), [source])
    for text in wrong:
        logger.error(text)
    if wrong:
        ctx.exit(EXIT_CODES["error"])


def _close_fetched(given: str, before: str, loaded: list[str]) -> None:
    """What was fetched has activities of ours if the toolkit came to load them."""
    if _loaded() != loaded:
        _close(given, before)


def _close(given: str, before: str) -> None:
    """Raise SystemExit(4) when the run left no verdict since ``before``, having shown what broke it."""
    from chaoslib.exceptions import ChaosException

    if exit_code.recorded() != before:
        return
    error = sys.exc_info()[1]
    told = (
        SystemExit,
        KeyboardInterrupt,
        click.exceptions.Exit,
        ChaosException,
    )  # the last the toolkit has said itself
    if error is not None and not isinstance(error, told):
        traceback.print_exception(error)
    logger.error(f"{given}: the run left no verdict, so it counts as an error")
    raise SystemExit(EXIT_CODES["error"])


def _loaded() -> list[str]:
    return [name for name in _ACTIVITIES if name in sys.modules]
