"""``chaos-mm lint``: experiment files held to the rules, without running anything."""

import json
from pathlib import Path

import click

from chaos_mm.controls.lint import Finding, lint
from chaos_mm.controls.lint_rules import finding
from chaos_mm.runner import sources

__all__ = ["command"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--json", "as_json", is_flag=True, help="Strict JSON instead of text.")
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Hold experiment FILES to the rules of docs/writing-an-experiment.md.

    Exit status: 0 no errors (with --strict no warnings either), 1 findings, 2 wrong usage.
    """
    for path in files:
        if path.is_dir():
            raise click.UsageError(f"{path} is a folder; name the files in it: {path}/*.json")
    found = {path: _look(path) for path in files}
    levels = [one.level for each in found.values() for one in each]
    errors, warnings = levels.count("error"), levels.count("warning")
    if as_json:
        listed = [{"file": str(path), "findings": [one.to_json() for one in each]} for path, each in found.items()]
        click.echo(json.dumps({"schema": 1, "files": listed, "errors": errors, "warnings": warnings}, indent=2))
    else:
        for path, each in found.items():
            _show(path, each)
        click.echo(f"{_many(len(found), 'file')}: {_many(errors, 'error')}, {_many(warnings, 'warning')}")
    ctx.exit(1 if errors or (strict and warnings) else 0)


def _look(path: Path) -> list[Finding]:
    try:
        experiment = sources.read(str(path)).experiment
    except sources.BadSource as error:
        return [finding("shape", "", str(error), "an experiment in JSON or YAML")]
    return lint(experiment or {})


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _show(path: Path, findings: list[Finding]) -> None:
    click.echo(str(path) if findings else f"{path}: clean")
    for one in findings:
        where = f"{one.where} ({one.activity})" if one.activity else one.where
        said = ": ".join(filter(None, (one.rule, where, one.wrong)))
        click.echo(f"  {one.level:7}  {said}\n           -> {one.instead}")
