"""Folders of runs that never happened, and a reader of pages that is strict about HTML."""

import itertools
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chaos_mm.report.folder import RunReport, read
from tests.report import samples
from tests.report.stories import Story, write

VOID = {"meta", "link", "img", "br", "hr", "input", "col"}


@pytest.fixture
def told(tmp_path: Path) -> Callable[[Story], RunReport]:
    """A story written to disk, each to a place of its own, and read back."""
    places = (tmp_path / str(number) for number in itertools.count())
    return lambda story: read(write(story, next(places)))


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of run, rendered once; not to be changed."""
    return samples.write_samples(tmp_path_factory.mktemp("rendered") / "reports")


class Html(HTMLParser):
    """Elements, attributes and text of a page; raises AssertionError where tags do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]
