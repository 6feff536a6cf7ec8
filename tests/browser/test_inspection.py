"""The checks find what they must: one page where all is well, and that page with one thing wrong at a time."""

from pathlib import Path

import pytest

from tests.browser.devtools import Chromium
from tests.browser.inspection import everything
from tests.browser.page import DESKTOP, DESKTOP_DARK, PHONE, PHONE_DARK, Look

pytestmark = pytest.mark.browser

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw=="
STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --paper: #111 } }
@media print { :root { --ink: #222; --paper: #fff } }
body { color: var(--ink); background: var(--paper); font: 16px sans-serif; margin: 1em }
.box { overflow: auto; width: 200px } svg text { fill: var(--ink); font-size: 14px }
"""
BODY = f"""
<h1>A page</h1> <p>Words.</p> <p><img src="{DOT}" alt="a dot" width="20"></p>
<svg width="200" height="40" role="img" aria-label="a word"><text x="5" y="20">word</text></svg>
<details><summary>More</summary>
<div class="box" tabindex="0" role="region" aria-label="wide"><pre>{"wide " * 60}</pre></div></details>
"""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><main>{body}</main></body></html>"""

# What is put into the page, in which look, and what must be said of it.
WRONG = {
    "picture from outside": ('<img src="http://127.0.0.1:9/x.png" alt="x">', DESKTOP, "requests http://127.0.0.1:9/x"),
    "style from outside": ("<style>@import url(https://fonts.invalid/a.css);</style>", PHONE, "requests https://fonts"),
    "file beside it": ('<img src="beside.png" alt="x">', PHONE_DARK, "requests file:"),
    "fetch": ("<script>fetch('https://count.invalid/').catch(() => 0)</script>", DESKTOP, "requests https://count"),
    "beacon": ("<script>navigator.sendBeacon('https://b.invalid/', '1')</script>", DESKTOP, "requests https://b.inv"),
    "socket": ("<script>new WebSocket('ws://127.0.0.1:9/')</script>", DESKTOP, "requests ws://127.0.0.1:9/"),
    "hint": ('<link rel="preconnect" href="https://cdn.invalid/">', DESKTOP, "may fetch from elsewhere: <link"),
    "frame": ('<iframe title="f" src="https://f.invalid/"></iframe>', DESKTOP, "may fetch from elsewhere: <iframe"),
    "console": ("<script>console.error('it', 'hurts')</script>", DESKTOP, "console error: it hurts"),
    "warning": ("<script>console.warn('careful')</script>", PHONE, "console warning: careful"),
    "exception": ("<script>nothing.here()</script>", DESKTOP, "uncaught: ReferenceError: nothing is not defined"),
    "rejection": ("<script>Promise.reject(new Error('late'))</script>", DESKTOP, "uncaught: Error: late"),
    "contrast": ('<p style="color: #999; background: #fff">faint</p>', DESKTOP, "axe color-contrast (serious)"),
    "contrast in the dark": ("<style>p { color: #333 }</style>", DESKTOP_DARK, "axe color-contrast (serious)"),
    "svg in the dark": ("<style>svg text { fill: #333 }</style>", PHONE_DARK, "of SVG text <text>"),
    "no alternative text": (f'<img src="{DOT}">', DESKTOP, "axe image-alt"),
    "folded fault": ('<details><summary>s</summary><img src="x:y"></details>', DESKTOP, "axe image-alt"),
    "wide on a phone": ('<p style="width: 700px">wide</p>', PHONE, "scrolls sideways, 7"),
    "wide when opened": ('<details><summary>s</summary><p style="width: 700px">w</p></details>', PHONE, "(opened)"),
    "small text": ('<p style="font-size: 7px">small</p>', PHONE, "text of 7.0 px, under 10"),
    "small in a drawing": (
        '<svg viewBox="0 0 900 40" role="img" aria-label="w"><text y="20">word</text></svg>',
        PHONE,
        "text of 5.6 px",
    ),
    "broken word": ('<p style="width: 2em; overflow-wrap: anywhere">activity</p>', DESKTOP, '"activity" is broken'),
    "broken word when opened": (
        '<details><summary>s</summary><p style="width: 2em; overflow-wrap: anywhere">activity</p></details>',
        DESKTOP,
        '"activity" is broken over',
    ),
    "text over text": (
        '<svg width="99" height="40" role="img" aria-label="w"><text y="20">word</text><text y="25">over</text></svg>',
        DESKTOP,
        '<text> "word" lies over <text> "over"',
    ),
    "broken picture": ('<img src="data:image/png;base64,AAAA" alt="broken">', DESKTOP, 'not decode: <img> "broken'),
    "broken sound": ('<audio controls src="data:audio/wav;base64,AAAA"></audio>', DESKTOP, "does not play: <audio>"),
    "no focus on a region": (
        '<div class="box"><pre>' + "wide " * 60 + "</pre></div>",
        DESKTOP,
        "axe scrollable-region-focusable",
    ),
    "invisible focus": ("<style>:focus-visible { outline: none }</style>", DESKTOP, "focus cannot be seen on <summ"),
    "summary out of reach": ('<details><summary tabindex="-1">s</summary>t</details>', DESKTOP, "not reach <summary>"),
    "bright in the dark": ("<style>body { background: #fff; color: #222 }</style>", PHONE_DARK, "asked for dark"),
    "dark paper": ("<style>@media print { html { background: #111 } }</style>", DESKTOP, "print: sheet 1 is dark"),
}  # fmt: skip


def said(chromium: Chromium, tmp_path: Path, extra: str, *looks: Look) -> list[str]:
    path = tmp_path / "page.html"
    path.write_text(PAGE.format(style=STYLE, body=BODY + extra), encoding="utf-8")
    return everything(chromium, path, looks=looks)


def test_nothing_is_said_of_a_page_that_is_well(chromium: Chromium, tmp_path: Path) -> None:
    assert said(chromium, tmp_path, "", DESKTOP, DESKTOP_DARK, PHONE, PHONE_DARK) == []


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_found(wrong: str, chromium: Chromium, tmp_path: Path) -> None:
    extra, look, words = WRONG[wrong]
    found = said(chromium, tmp_path, extra, look)
    assert [one for one in found if words in one], found


def test_a_page_without_a_viewport_is_found(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<!doctype html><html lang='en'><title>t</title><main><h1>Words</h1></main>", encoding="utf-8")
    assert "phone: laid out 980 px wide on 390 px: no viewport meta?" in everything(chromium, path, looks=(PHONE,))


def test_pictures_are_kept_of_every_look(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE.format(style=STYLE, body=BODY), encoding="utf-8")
    everything(chromium, path, tmp_path / "shots", (DESKTOP_DARK,))
    kept = {one.name.removeprefix(tmp_path.name): one.read_bytes()[:4] for one in (tmp_path / "shots").iterdir()}
    assert kept == {
        "-page-desktop-dark.png": b"\x89PNG",
        "-page-desktop-dark-open.png": b"\x89PNG",
        "-page-desktop-dark.pdf": b"%PDF",
    }
