"""``chaos-mm doctor``: what an experiment needs, what is there, what to type."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from chaos_mm.commands import findings
from chaos_mm.commands.findings import Finding

__all__ = ["command"]

_MARKS = {True: "ok     ", False: "MISSING", None: "note   "}


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def command(ctx: click.Context, file: Path | None) -> None:
    """Check what the experiment in FILE needs; without FILE, what any of the shipped ones does.

    Exit status: 0 everything is there, 1 something is missing.
    """
    good = True
    for finding in _about(file) if file else _about_machine():
        click.echo(f"{_MARKS[finding.good]}  {finding.what}: {finding.found}")
        if finding.do:
            click.echo(f"         -> {finding.do}")
        good = good and finding.good is not False
    ctx.exit(0 if good else 1)


def _about_machine() -> Iterator[Finding]:
    yield from findings.about_installation()
    yield from findings.about_demo()
    yield from findings.about_points()
    yield from findings.about_target()
    yield from findings.about_objectives()


def _about(path: Path) -> Iterable[Finding]:
    # chaoslib is slow to import and logs what it does; a doctor says only what it found.
    from chaoslib.configuration import load_configuration
    from chaoslib.exceptions import ChaosException
    from chaoslib.experiment import ensure_experiment_is_valid
    from chaoslib.loader import load_experiment
    from chaoslib.secret import load_secrets

    logger = logging.getLogger("chaostoolkit")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        experiment = load_experiment(str(path))
        configuration = load_configuration(experiment.get("configuration", {}))
        secrets = load_secrets(experiment.get("secrets", {}), configuration)
        ensure_experiment_is_valid(experiment)
    except (ChaosException, ValueError) as error:  # ValueError: the environment holds no number where one is asked for
        return [Finding(False, f"experiment {path.name}", str(error), f"chaos-mm lint {path}")]
    finally:
        logger.setLevel(level)
    return [
        *findings.about_installation(),
        *findings.about_points(configuration, path.name),
        *findings.about_target(configuration),
        *findings.about_objectives(configuration),
        *findings.about_experiment(experiment, configuration, secrets, path),
    ]
