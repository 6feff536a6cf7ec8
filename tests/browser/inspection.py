"""Everything that is asked of a report in a browser. Each check returns sentences; none means all is well."""

import json
from pathlib import Path
from typing import Any

from tests.browser.devtools import Chromium
from tests.browser.page import DESKTOP, LOOKS, Look, Page
from tests.browser.paper import dark_paper, drawn
from tests.house.conftest import ROOT

AXE = ROOT / ".browser/package/axe.min.js"
LEAST_TEXT_PX = 10
MOST_KEYS = 1500


def everything(chromium: Chromium, path: Path, shots: Path | None = None, looks: tuple[Look, ...] = LOOKS) -> list[str]:
    """What is wrong with the page in any of the looks; its pictures go to the folder ``shots``."""
    name = f"{path.parent.name}-{path.stem}"
    found = []
    for look in looks:
        with Page(chromium, path, look) as page:
            keep(shots, f"{name}-{look.name}.png", page.screenshot)
            found += [f"{look.name}: {one}" for one in seen(page)]
            keep(shots, f"{name}-{look.name}-open.png", page.screenshot)
            if not look.phone:
                found += [f"{look.name}-print: {one}" for one in printed(page, shots, f"{name}-{look.name}")]
            found += [f"{look.name}: {one}" for one in [*requests(page), *console(page)]]
    return found


def seen(page: Page) -> list[str]:
    """As it opens, and again with all that folds open."""
    found = [*layout(page), *ask(page, "wrongScheme", page.look.dark), *ask(page, "outsideHints")]
    if page.look is DESKTOP:
        found += keyboard(page)
    if ask(page, "openDetails"):
        page.settle()
        found += [f"{one} (opened)" for one in layout(page)]
    return [*found, *ask(page, "faintSvgText"), *ask(page, "brokenMedia"), *accessibility(page)]


def ask(page: Page, check: str, *arguments: Any) -> list[str]:
    answer = page.evaluate(f"checks.{check}({', '.join(json.dumps(one) for one in arguments)})")
    return [str(one) for one in answer]


def layout(page: Page) -> list[str]:
    found = [*ask(page, "wideContent", page.look.width), *ask(page, "smallText", LEAST_TEXT_PX)]
    return [*found, *ask(page, "brokenWords"), *ask(page, "overlappingSvgText")]


def accessibility(page: Page) -> list[str]:
    """What axe finds. Raises RuntimeError where axe is not installed."""
    if not AXE.is_file():
        raise RuntimeError(f"no axe at {AXE.relative_to(ROOT)}: `make test-browser` installs it with npm")
    page.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    return ask(page, "axe")


def requests(page: Page) -> list[str]:
    """Requests for anything but the page itself and what it holds."""
    asked = [one["request"]["url"] for one in page.events("Network.requestWillBeSent")]
    asked += [one["url"] for one in page.events("Network.webSocketCreated")]
    return [f"requests {url[:120]}" for url in asked if url != page.url and not url.startswith("data:")]


def console(page: Page) -> list[str]:
    """Errors and warnings, uncaught ones included."""
    found = []
    for said in page.events("Runtime.consoleAPICalled"):
        if said["type"] in ("error", "warning", "assert"):
            words = [str(one.get("value", one.get("description"))) for one in said["args"]]
            found.append(f"console {said['type']}: {' '.join(words)}")
    for thrown in page.events("Runtime.exceptionThrown"):
        detail = thrown["exceptionDetails"]
        found.append(f"uncaught: {detail.get('exception', {}).get('description', detail['text'])}")
    entries = [one["entry"] for one in page.events("Log.entryAdded")]
    return found + [f"{one['level']}: {one['text']}" for one in entries if one["level"] in ("error", "warning")]


def keyboard(page: Page) -> list[str]:
    """Tab through the page, opening what is folded with Enter; whatever can be used or scrolled must get the focus."""
    found = []
    for _ in range(MOST_KEYS):
        page.press("Tab")
        focus = page.evaluate("checks.focus()")
        if focus is None or focus["before"]:
            return found + ask(page, "unreached")
        if not focus["shown"]:
            found.append(f"the focus cannot be seen on {focus['name']}")
        if focus["closed"]:
            page.press("Enter")
            if page.evaluate("checks.focus().closed"):
                found.append(f"Enter does not open {focus['name']}")
    return [*found, f"Tab does not come to an end within {MOST_KEYS} stops"]


def printed(page: Page, shots: Path | None, name: str) -> list[str]:
    pdf = page.pdf()
    keep(shots, f"{name}.pdf", lambda: pdf)
    sheets = drawn(pdf)
    return ["prints no page"] if not sheets else dark_paper(sheets)


def keep(shots: Path | None, name: str, make: Any) -> None:
    if shots is not None:
        shots.mkdir(parents=True, exist_ok=True)
        (shots / name).write_bytes(make())
