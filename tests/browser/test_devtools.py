"""The browser over its pipes: what is missing, refused or over is said, and soon."""

from pathlib import Path

import pytest

from tests.browser import inspection
from tests.browser.devtools import Chromium, DevtoolsError, program
from tests.browser.page import DESKTOP, DESKTOP_DARK, Look, Page


def test_a_missing_browser_fails_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CHAOS_MM_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no Chromium: `make test-browser` installs it"):
        Chromium()


def test_a_browser_named_wrongly_fails_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_MM_CHROMIUM", "no-such-browser")
    with pytest.raises(RuntimeError, match="CHAOS_MM_CHROMIUM=no-such-browser is not a program"):
        program()


@pytest.mark.browser
def test_what_chromium_refuses_is_an_error(chromium: Chromium) -> None:
    with pytest.raises(DevtoolsError, match="Page.fly"):
        chromium.call("Page.fly")


@pytest.mark.browser
def test_a_command_without_an_answer_ends_in_time(chromium: Chromium) -> None:
    with pytest.raises(DevtoolsError, match="Never.happens: no answer in time"):
        chromium.wait("", "Never.happens", seconds=0.1)


@pytest.mark.browser
def test_a_browser_that_ended_is_said_to_have_ended() -> None:
    with Chromium() as one:
        one.call("Browser.close")
        with pytest.raises(DevtoolsError, match="Chromium ended"):
            one.wait("", "Nothing.comes", seconds=20)


@pytest.mark.browser
def test_a_page_that_is_not_there_is_no_page(chromium: Chromium, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ERR_FILE_NOT_FOUND"):
        Page(chromium, tmp_path / "absent.html", DESKTOP)


@pytest.mark.browser
def test_missing_axe_fails(chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("<!doctype html><title>t</title>", encoding="utf-8")
    monkeypatch.setattr(inspection, "AXE", inspection.ROOT / ".browser/nothing/axe.min.js")
    with Page(chromium, path, DESKTOP) as page, pytest.raises(RuntimeError, match="no axe at .browser/nothing"):
        inspection.accessibility(page)


@pytest.mark.browser
@pytest.mark.parametrize("look", [DESKTOP, DESKTOP_DARK])
def test_a_look_is_what_the_page_sees(look: Look, chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<!doctype html><title>t</title>", encoding="utf-8")
    with Page(chromium, path, look) as page:
        seen = page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches, navigator.onLine]")
    assert seen == [look.width, look.dark, not look.offline]
