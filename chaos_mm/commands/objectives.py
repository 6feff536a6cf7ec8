"""``chaos-mm objectives``: what counts as good, as the files say it."""

import json
from pathlib import Path

import click

from chaos_mm.commands.tables import aligned
from chaos_mm.sli.objectives import COMPARISONS, Objective, find, load

__all__ = ["command"]

_SIGNS = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}
assert set(_SIGNS) == set(COMPARISONS)


@click.command()
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Strict JSON instead of a table.")
def command(directory: Path | None, as_json: bool) -> None:
    """List the objectives in DIRECTORY (default: where experiments look for them)."""
    objectives = load(directory)
    if as_json:
        click.echo(json.dumps([objective.to_json() for objective in objectives.values()], indent=2))
        return
    click.echo(f"Objectives in {find(directory)}:", err=True)
    headers = ("objective", "SLI", "must be", "in each", "from", "guard", "of requests")
    click.echo(aligned(headers, [_row(objective) for objective in objectives.values()]))


def _row(objective: Objective) -> tuple[str, ...]:
    filters = ", ".join(f"{name}={value}" for name, value in objective.filters.items())
    return (
        objective.name,
        objective.sli,
        f"{_SIGNS[objective.comparison]} {objective.threshold:g}",
        f"{objective.window_seconds:g} s",
        f"{objective.min_samples} samples",
        f"after {objective.hold_seconds:g} s" if objective.guard else "-",
        filters or "all",
    )
