"""One browser for all tests; its absence fails them, for a page that nobody saw is not a page that looks well."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.devtools import Chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    with Chromium() as one:
        yield one


@pytest.fixture(scope="session")
def shots() -> Path | None:
    """Where screenshots go: CHAOS_MM_SCREENSHOTS, or nowhere."""
    named = os.environ.get("CHAOS_MM_SCREENSHOTS", "")
    return Path(named) if named else None
