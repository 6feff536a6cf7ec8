"""The reports as a person opens them: every page, from disk, in every look."""

from pathlib import Path

import pytest

from tests.browser.devtools import Chromium
from tests.browser.inspection import everything
from tests.house.conftest import ROOT
from tests.report.samples import INTERRUPTED, STORIES, write_samples

pytestmark = pytest.mark.browser

# Each page by the end of its folder's name.
PAGES = {"overview": "index.html"} | {
    f"{story.experiment}-{story.run[-6:]}": f"*{story.run[-6:]}/index.html" for story in (*STORIES, INTERRUPTED)
}

# What the README shows; tests/house sees to it that it is there.
SHOWN = sorted((ROOT / "reports/sample").rglob("*.html"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_samples(tmp_path_factory.mktemp("reports") / "reports")


def test_no_page_is_left_out(reports: Path) -> None:
    seen = {page for pattern in PAGES.values() for page in reports.glob(pattern)}
    assert seen == set(reports.rglob("*.html")) and len(seen) == len(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wrong_with_a_page_in_any_look(
    name: str, chromium: Chromium, reports: Path, shots: Path | None
) -> None:
    (page,) = reports.glob(PAGES[name])
    found = everything(chromium, page, shots)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.parent.name)
def test_nothing_is_wrong_with_the_report_in_the_repository(page: Path, chromium: Chromium, shots: Path | None) -> None:
    found = everything(chromium, page, shots)
    assert not found, "\n".join(found)
