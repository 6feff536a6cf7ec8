"""``chaos-mm report``: render a run, or all of them, once more."""

from pathlib import Path

import click

from chaos_mm.report import folder as folders
from chaos_mm.report import render

__all__ = ["command"]


@click.command()
@click.argument(
    "directory",
    metavar="[DIR]",
    required=False,
    envvar="CHAOS_MM_REPORTS",
    default="reports",
    type=click.Path(path_type=Path),
)
def command(directory: Path) -> None:
    """Render the report of DIR again, and print its path.

    DIR is one run's folder, or a folder of such (default: $CHAOS_MM_REPORTS, else ./reports). A run that was killed, or
    whose files are cut off, is rendered as far as they go.
    """
    if not directory.is_dir():
        raise click.ClickException(
            f"{directory}: no such folder; `chaos run` makes it, or name one: chaos-mm report DIR"
        )
    if folders.is_run(directory):
        click.echo(render.run(directory))
        return
    runs = folders.runs_in(directory)
    if not runs:
        raise click.ClickException(f"{directory}: no run in it; a run's folder holds events.jsonl or verdict.json")
    troubles = [trouble for one in runs if (trouble := _rendered(one))]
    render.all(directory)
    click.echo(directory / "index.html")
    if troubles:
        raise click.ClickException("; ".join(troubles))


def _rendered(folder: Path) -> str:
    """Why the page could not be written; one folder of somebody else's keeps no other from its page."""
    try:
        render.run(folder)
    except OSError as error:
        return f"{folder}: its page was not written: {error.strerror or error}"
    return ""
