"""The table for a pull request, read back by a second library's parser of GitHub's Markdown."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from chaos_mm.report.folder import RunReport
from chaos_mm.report.markdown import escaped, markdown
from chaos_mm.report.parts import Reason
from tests.report.hostile import TEXTS
from tests.report.samples import DEVIATED, HALTED, PASSED


def tokens(text: str) -> Iterator[Token]:
    for one in MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(text):
        yield one
        yield from one.children or ()


def cells(text: str) -> list[str]:
    found = list(tokens(text))
    inside = [found[at + 1] for at, one in enumerate(found) if one.type == "td_open"]
    return ["".join(child.content for child in one.children or ()) for one in inside]


def test_each_run_has_its_row(told: Callable[..., RunReport]) -> None:
    text = markdown([told(PASSED), told(DEVIATED), told(HALTED)])
    found = cells(text)
    assert len(found) == 3 * 7 and text.startswith("### Chaos: 1 of 3 runs passed\n")
    assert found[:4] == ["image-noise", "✅ passed", "image_noise (sigma 0.2)", "57 of 57"]
    assert found[8] == "❌ deviated" and "(not met)" in found[11] and found[12] == "6.4 s" and found[13] == "1"
    assert "* image-noise, deviated: picture-answers: canary\\_exact is 0.08" in text
    assert text.endswith("\nHighest exit code: 1\n") and "](" not in text


def test_what_was_expected_otherwise_is_said(told: Callable[..., RunReport]) -> None:
    assert "❌ deviated (expected passed)" in cells(markdown([told(replace(DEVIATED, expect="passed"))]))
    assert "❌ deviated" in cells(markdown([told(DEVIATED)]))


def test_no_runs_is_a_table_without_rows() -> None:
    assert markdown([]).startswith("### Chaos: 0 of 0 runs passed\n") and cells(markdown([])) == []


@pytest.mark.parametrize("text", TEXTS)
def test_hostile_text_stays_text(told: Callable[..., RunReport], text: str) -> None:
    run = told(DEVIATED)
    hostile = replace(run, told={**run.told, "experiment": text, "fault": text, "expect": text})
    hostile = replace(hostile, reasons=(Reason("deviated", text),))
    found = list(tokens(markdown([hostile])))
    assert {one.type for one in found} & {
        "link_open",
        "image",
        "html_block",
        "html_inline",
        "code_inline",
        "fence",
    } == set()
    assert sum(one.type == "td_open" for one in found) == 7
    assert sum(one.type == "heading_open" for one in found) == 1


def test_escaped_shows_what_it_was_given() -> None:
    (paragraph,) = [one for one in tokens(escaped("a|b *c* <d> [e](f) `g` _h_ \\i #1 @j", 99)) if one.type == "inline"]
    assert "".join(one.content for one in paragraph.children or ()) == "a|b *c* <d> [e](f) `g` _h_ \\i #1 @j"
    assert escaped("see https://evil.example now", 99) == "see https\u200b://evil.example now"
    assert "\n" not in escaped("a\nb", 9) and len(escaped("x" * 999, 50)) == 50


def test_a_great_many_runs_fit_a_comment(told: Callable[..., RunReport]) -> None:
    text = markdown([told(PASSED)] * 1000)
    assert len(text) < 65_536 and "800 earlier runs are not in this table." in text and "1000 of 1000" in text
