"""``chaos-mm stop``: the switch for everything, from any shell."""

import click

from chaos_mm.commands.points import NOT_ANSWERING_EXIT, Answer, ask, known_points

__all__ = ["command"]


@click.command()
@click.option("--clear", is_flag=True, help="Lift the latch instead, so that faults can be injected again.")
@click.option("--url", "urls", multiple=True, help="One more point's control URL.")
@click.pass_context
def command(ctx: click.Context, clear: bool, urls: tuple[str, ...]) -> None:
    """Release every lease at every point, and refuse new ones until `chaos-mm stop --clear`.

    Exit status: 0 every point that answers was asked, 3 one that was named did not obey.
    """
    answers = ask(known_points(urls), lambda client, _: client.clear_stop() if clear else client.stop())
    shown = [answer for answer in answers if not answer.absent]
    if not shown:
        click.echo("No point answers at any known address; there is nothing to stop.", err=True)
    for answer in shown:
        click.echo(_words(answer, clear), err=answer.error is not None)
    ctx.exit(NOT_ANSWERING_EXIT if any(answer.error for answer in shown) else 0)


def _words(answer: Answer, clear: bool) -> str:
    where = f"{answer.at.kind} {answer.at.url}"
    if answer.error is not None:
        return f"{where} (named by {answer.at.source}): NOT {'cleared' if clear else 'stopped'}: {answer.error}"
    if clear:
        return f"{where}: takes faults again"
    released = answer.value["released"]
    what = f"released {released} lease{'s' * (released != 1)}" if released else "nothing was armed"
    return f"{where}: {what}; it refuses new faults until `chaos-mm stop --clear`"
