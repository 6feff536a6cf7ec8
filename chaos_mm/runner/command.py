"""What ``chaos run SOURCE SOURCE...`` and ``chaos gameday run SOURCE...`` do; their click commands are derived in
``chaos_mm.chaos_cli``."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from chaos_mm.report.words import EXIT_CODES, highest
from chaos_mm.runner import lines, options, sequence, sources, variables
from chaos_mm.runner.expect import exit_status, words_for
from chaos_mm.runner.live import view_for
from chaos_mm.runner.planned import Ended, Planned
from chaos_mm.runner.view import PassingOn, View

__all__ = ["gameday", "several"]

logger = logging.getLogger("chaostoolkit")


def several(ctx: click.Context, given: Sequence[str], arguments: Sequence[str]) -> int:
    """Run each in order, those tagged ``fatal`` last; the highest exit status.

    Lines to stdout, what the runs themselves say to stderr.
    """
    found = options.given(ctx.command, ctx, arguments)
    options.refuse_one_file(found, len(given))
    planned = _planned(ctx, given, found, [""] * len(given))
    ended = _run(ctx, planned, PassingOn(lambda text: click.echo(text, err=True)))
    _close(ended, planned, expectations=False)
    stopped = [EXIT_CODES["interrupted"]] if len(ended) < len(planned) else []
    return highest([*stopped, *(one.exit_code for one in ended)])


def gameday(ctx: click.Context, given: Sequence[str], arguments: Sequence[str], expect: Sequence[str]) -> int:
    """Run each in order under a live view; 0 when each ended as expected."""
    try:
        words = words_for(expect, len(given))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--expect") from None
    found = options.given(ctx.command, ctx, arguments)
    found.pop("expect", None)
    options.refuse_one_file(found, len(given))
    if any(word.endswith("=agent") for word in found.get("output_format", ())):
        raise click.UsageError("--output agent needs stdout, which a game day shows itself on; use `chaos run`")
    planned = _planned(ctx, given, found, words)
    ended = _run(ctx, planned, view_for(sys.stdout))
    _close(ended, planned, expectations=True)
    return exit_status(ended, len(planned))


def _planned(
    ctx: click.Context, given: Sequence[str], found: Mapping[str, Sequence[str]], words: Sequence[str]
) -> list[Planned]:
    """In the order in which they are to run: as given, but those that take the service down come last.

    Every source is looked at before the first runs: what is wrong with any ends it here, with exit status 4.
    """
    controls = sources.global_controls(ctx.obj["settings_path"], ctx.params.get("control_file") or ())
    handed_on = tuple(word for said in found.values() for word in said)
    planned, read, wrong = [], [], []
    for one, word in zip(given, words, strict=True):
        try:
            source = sources.read(one, controls)
        except sources.BadSource as error:
            wrong.append(str(error))
            continue
        read.append(source)
        wrong += [source.refusal] if source.refusal else []
        foreign = source.experiment is not None and not source.judged
        planned.append(Planned(one, handed_on, word or source.expect, foreign))
    wrong += variables.unknown(ctx.params.get("var") or (), read)
    if wrong:
        for text in wrong:
            logger.error(text)
        ctx.exit(EXIT_CODES["error"])
    last = {one.given for one in read if one.fatal}
    return sorted(planned, key=lambda one: one.source in last)


def _run(ctx: click.Context, planned: Sequence[Planned], view: View) -> list[Ended]:
    group = ctx.find_root()
    try:
        return sequence.run_all(
            planned,
            reports_dir=reports_dir(),
            environment=os.environ,
            show=click.echo,
            view=view,
            command=options.of_the_group(group),
        )
    except BrokenPipeError:
        logger.error("nobody reads any more what the runs say, so the one under way was ended")
        ctx.exit(EXIT_CODES["error"])
    except OSError as error:
        logger.error(f"no folder for the runs can be made: {error}; CHAOS_MM_REPORTS says where they go")
        ctx.exit(EXIT_CODES["error"])


def reports_dir() -> Path:
    """Where the folders of runs go: ``CHAOS_MM_REPORTS``, else ``reports`` here."""
    return Path(os.environ.get("CHAOS_MM_REPORTS") or "reports")


def _close(ended: Sequence[Ended], planned: Sequence[Planned], expectations: bool) -> None:
    """The table, what was not run, and where the report is."""
    click.echo()
    for text in lines.table(ended, expectations):
        click.echo(text)
    for one in planned[len(ended) :]:
        click.echo(f"not run: {one.source}")
    report = sequence.closing(ended, reports_dir())
    if report:
        click.echo(f"\n{report}")
