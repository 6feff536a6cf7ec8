"""``chaos-mm status``: every lease everywhere."""

import json
from typing import Any

import click

from chaos_mm.commands.points import NOT_ANSWERING_EXIT, Answer, ask, known_points
from chaos_mm.commands.tables import aligned
from chaos_mm.control.client import ControlClient

__all__ = ["command"]

_HEADERS = ("point", "fault", "lease", "owner", "reason", "mode", "hits", "time left")


@click.command()
@click.option("--url", "urls", multiple=True, help="One more point's control URL.")
@click.option("--json", "as_json", is_flag=True, help="Strict JSON instead of a table.")
@click.pass_context
def command(ctx: click.Context, urls: tuple[str, ...], as_json: bool) -> None:
    """Show every lease at every point: fault, owner, reason, hits, time left.

    Exit status: 0 nothing is armed, 1 something is, 3 a point that was named does not answer and nothing is seen armed.
    """
    answers = ask(known_points(urls), _look)
    live = [(answer, lease) for answer in answers for lease in _live(answer)]
    if as_json:
        click.echo(json.dumps([_as_json(answer) for answer in answers if not answer.absent], indent=2))
    else:
        _show(answers, live)
    silent = any(answer.error is not None and not answer.absent for answer in answers)
    ctx.exit(1 if live else NOT_ANSWERING_EXIT if silent else 0)


def _look(client: ControlClient, health: dict[str, Any]) -> dict[str, Any]:
    return {**health, "leases": client.leases()}


def _live(answer: Answer) -> list[dict[str, Any]]:
    return [] if answer.error else [lease for lease in answer.value["leases"] if lease["state"] != "ended"]


def _show(answers: list[Answer], live: list[tuple[Answer, dict[str, Any]]]) -> None:
    if live:
        click.echo(aligned(_HEADERS, [_row(answer, lease) for answer, lease in live]))
    elif any(not answer.error for answer in answers):
        click.echo("Nothing is armed.")
    elif all(answer.absent for answer in answers):
        click.echo("No point answers at any known address, so nothing is armed there.")
    else:
        click.echo("No point could be asked, so whether anything is armed is not known.")
    for answer in answers:
        where = f"{answer.at.kind} {answer.at.url}"
        if answer.error is None and answer.value["stopped"]:
            click.echo(f"{where}: stopped; it refuses new faults until `chaos-mm stop --clear`", err=True)
        elif answer.error is None:
            click.echo(f"{where}: answers, version {answer.value['version']}", err=True)
        elif not answer.absent:
            click.echo(f"{where} (named by {answer.at.source}): {answer.error}", err=True)


def _row(answer: Answer, lease: dict[str, Any]) -> tuple[str, ...]:
    hits = f"{lease['applied']} of {lease['matched']}" + (f", {lease['errored']} errored" if lease["errored"] else "")
    left = f"{lease['expires_in_seconds']:.0f} s (keepalive {lease['keepalive_in_seconds']:.0f} s)"
    point = f"{answer.value['point']} {answer.at.url}"
    return (point, lease["fault"], lease["name"], lease["owner"], lease["reason"], lease["mode"], hits, left)


def _as_json(answer: Answer) -> dict[str, Any]:
    head = {"kind": answer.at.kind, "url": answer.at.url, "named_by": answer.at.source}
    return {**head, "error": str(answer.error)} if answer.error else {**head, **answer.value}
