"""``chaos-mm version``: what is installed, as one line each."""

import importlib.metadata
import platform
from collections.abc import Iterator

import click

__all__ = ["command", "versions"]

_SHOWN = ("chaostoolkit-multimodal", "chaostoolkit", "chaostoolkit-lib", "torch", "transformers", "numpy", "aiohttp")


def versions() -> Iterator[tuple[str, str]]:
    """Name and version of what decides how we behave; ``not installed`` where an extra is absent."""
    for name in _SHOWN:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed"
    yield "python", platform.python_version()


@click.command()
def command() -> None:
    """Print the versions that matter in a bug report."""
    for name, version in versions():
        click.echo(f"{name} {version}")
