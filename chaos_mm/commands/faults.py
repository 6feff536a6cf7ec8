"""``chaos-mm faults``: the catalogue in words. It also writes the README's table: nobody lists faults by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from chaos_mm.commands.tables import aligned, markdown
from chaos_mm.core.fault import Effect, Fault
from chaos_mm.core.params import ParamSpec
from chaos_mm.faults import catalogue, get

__all__ = ["BEGIN", "END", "command", "replaced", "table"]

BEGIN, END = "<!-- faults: begin (written by `chaos-mm faults table --write FILE`) -->", "<!-- faults: end -->"
_ENDS = {"ttl_seconds": 300, "keepalive_seconds": 10}
_EFFECTS = {
    Effect.RAISES: "an exception leaves the seam; an engine that does not survive one says so and must be restarted.",
    Effect.ROWS: "another number of rows than the prompt has placeholders; an engine may not survive that and says so.",
    Effect.EXITS: "the process ends; another must take its place, and the verdict looks whether one does.",
}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def command() -> None:
    """List and explain the faults."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Every declaration as JSON.")
def list_faults(as_json: bool) -> None:
    """One line a fault: what it hurts and what it does."""
    faults = catalogue().values()
    if as_json:
        click.echo(json.dumps([fault.schema() for fault in faults], indent=2))
        return
    rows = [(f.name, f.target, ", ".join(f.points), first_line(f)) for f in faults]
    click.echo(aligned(("fault", "target", "points", "what it does"), rows))


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Everything one fault declares, and the action that injects it."""
    fault = get(name.replace("-", "_"))  # experiments are called so
    click.echo(f"{fault.name}  ({fault.target} at {', '.join(fault.points)})\n\n{fault.doc}\n")
    for line in inside(fault):
        click.echo(line)
    click.echo(aligned(("parameter", "default", "allowed", "meaning"), [_row(spec) for spec in fault.params.values()]))
    if fault.presets:
        presets = ((severity, _settings(values)) for severity, values in sorted(fault.presets.items()))
        click.echo("\n" + aligned(("severity", "preset"), list(presets)))
    click.echo("\nIn an experiment:\n" + json.dumps(activity(fault), indent=2))


@command.command(name="table")
@click.option(
    "--write", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Replace the table in FILE."
)
@click.option(
    "--check", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Fail when FILE's is stale."
)
def show_table(write: Path | None, check: Path | None) -> None:
    """The Markdown table of all faults, as it stands in the README."""
    if check is not None:
        text = check.read_text(encoding="utf-8")
        if replaced(text, check) != text:
            raise click.ClickException(f"{check}: the faults table is stale; chaos-mm faults table --write {check}")
    elif write is not None:
        write.write_text(replaced(write.read_text(encoding="utf-8"), write), encoding="utf-8")
    else:
        click.echo(table())


def first_line(fault: Fault) -> str:
    """The summary of its documentation."""
    return fault.doc.split("\n\n")[0].replace("\n", " ")


def inside(fault: Fault) -> list[str]:
    """What there is to know of a fault inside or beside an engine before it is injected; nothing of the others."""
    told = [f"Seam inside the engine: {fault.seam}."] if fault.seam else []
    if fault.effect is not Effect.NONE:
        told.append(f"Effect: {_EFFECTS[fault.effect]}")
    if not fault.selectable:
        told.append("Nobody can be picked out: it counts as live traffic (--allow-live --max-rate at the point).")
    if fault.carries_content:
        told.append("It carries content from one request to another, so it is for canaries only.")
    return [*told, ""] if told else []


def activity(fault: Fault) -> dict[str, object]:
    """The action of an experiment's method that injects the fault with its defaults, and says when it ends."""
    arguments = {**{name: spec.default for name, spec in fault.params.items()}, **_ENDS}
    provider = {"type": "python", "module": "chaos_mm.actions", "func": f"inject_{fault.name}", "arguments": arguments}
    return {"type": "action", "name": f"inject-{fault.name.replace('_', '-')}", "provider": provider}


def table() -> str:
    """All faults with their parameters, as Markdown."""
    rows = [(f"`{f.name}`", f.target, ", ".join(f.points), first_line(f), _parameters(f)) for f in catalogue().values()]
    return markdown(("fault", "target", "points", "what it does", "parameters (default; allowed)"), rows)


def replaced(text: str, where: Path) -> str:
    """``text`` with a fresh table between the two marks. Raises ClickException when they are not there, once each."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise click.ClickException(f"{where} must hold these two lines once each, in this order:\n{BEGIN}\n{END}")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def _parameters(fault: Fault) -> str:
    return "; ".join(f"`{spec.name}` ({spec.default!r}; {spec.allowed})" for spec in fault.params.values())


def _row(spec: ParamSpec) -> tuple[str, str, str, str]:
    return spec.name, repr(spec.default), spec.allowed, spec.doc


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
