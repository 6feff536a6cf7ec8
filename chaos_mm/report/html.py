"""Pages from templates. Everything is escaped, and a page that would need anything from elsewhere may not load it."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["rendered"]

_TEMPLATES = Path(__file__).with_name("templates")


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """The page ``run.html`` or ``index.html`` with these values."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from chaos_mm.report.svg import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FileSystemLoader(_TEMPLATES), keep_trailing_newline=True
    )
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    environment.globals.update(style=Markup(style), version=_version())
    return environment


def _version() -> str:
    try:
        return version("chaostoolkit-multimodal")
    except PackageNotFoundError:  # a source tree that is on the path without having been installed
        return "of unknown version"
