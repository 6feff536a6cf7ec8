"""``chaos-mm init``: the shipped experiments and objectives, written out for editing."""

from collections.abc import Iterator
from pathlib import Path

import click

from chaos_mm.sli.objectives import packaged_dir

__all__ = ["command", "experiments_dir", "shipped"]


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Write the experiments and objectives to DIRECTORY. A file that is there is never overwritten."""
    written, kept = 0, 0
    for source in shipped():
        relative = source.relative_to(experiments_dir())
        if _write_new(directory / relative, source.read_bytes()):
            written += 1
        else:
            kept += 1
            click.echo(f"kept {directory / relative}: it exists already", err=True)
    click.echo(f"{written} files written to {directory}, {kept} kept")
    click.echo(f"Next: CHAOS_MM_OBJECTIVES={directory / 'objectives'} chaos run {directory / 'image-noise.json'}")


def experiments_dir() -> Path:
    """The shipped experiments; in a source checkout, those of the checkout."""
    return packaged_dir().parent


def shipped() -> Iterator[Path]:
    """Every file that ships there, in order. Raises ClickException when the installation holds none."""
    files = sorted(p for kind in ("*.json", "*.yaml", "*.md") for p in experiments_dir().rglob(kind) if p.is_file())
    if not files:
        raise click.ClickException(f"{experiments_dir()} holds no experiments; reinstall chaostoolkit-multimodal")
    yield from files


def _write_new(path: Path, content: bytes) -> bool:
    """Write a file that must not exist; False when it does, or a link of that name does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True
